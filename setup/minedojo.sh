#!/bin/sh
# Installs MineDojo with Java 8 and a build of Minecraft into the Python that is active. Debian or Ubuntu.
# The build downloads Minecraft, whose licence you have to accept. Without a screen, set MINEDOJO_HEADLESS=1.
# Written after MineDojo's own instructions (https://docs.minedojo.org/sections/getting_started/install.html); not run
# where Reverie is developed.
set -eu
sudo apt-get install -y openjdk-8-jdk xvfb git || {
    echo "Your system has no Java 8. Install a JDK 8 (https://adoptium.net), then run this again."; exit 1; }
python -m pip install "setuptools<66" "wheel<0.39"   # the old gym does not build with newer ones
python -m pip install --no-build-isolation "gym==0.21.0"
python -m pip install --no-build-isolation minedojo
MINEDOJO_HEADLESS=1 python -c "import minedojo; print('MineDojo is installed')"
