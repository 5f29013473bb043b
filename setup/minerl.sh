#!/bin/sh
# Installs MineRL 1.0 with Java 8 and a build of Minecraft into the Python that is active. Debian or Ubuntu.
# The build downloads Minecraft, whose licence you have to accept. Without a screen, start Reverie with xvfb-run.
# Written after MineRL's own instructions (https://minerl.readthedocs.io/en/latest/tutorials/index.html); not run where
# Reverie is developed.
set -eu
sudo apt-get install -y openjdk-8-jdk xvfb git || {
    echo "Your system has no Java 8. Install a JDK 8 (https://adoptium.net), then run this again."; exit 1; }
JAVA_HOME="${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")}"
export JAVA_HOME
python -m pip install "setuptools<66" "wheel<0.39"   # the old gym does not build with newer ones
python -m pip install --no-build-isolation "gym==0.23.1"
python -m pip install --no-build-isolation "git+https://github.com/minerllabs/minerl@v1.0.0"
python -c "import minerl; print('MineRL is installed')"
