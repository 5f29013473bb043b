#!/bin/sh
# Builds DeepMind Lab from source and installs it into the Python that is active. Debian or Ubuntu, about 10 GB.
# Needs Bazel (https://bazel.build/install) and git. Written after Lab's own instructions
# (https://github.com/google-deepmind/lab/blob/master/docs/users/build.md); not run where Reverie is developed.
set -eu
command -v bazel >/dev/null || { echo "Install Bazel first: https://bazel.build/install"; exit 1; }
sudo apt-get install -y git gettext freeglut3-dev libffi-dev libglu1-mesa-dev libglu1-mesa libosmesa6-dev lua5.1 \
    liblua5.1-0-dev libsdl2-dev unzip zip zlib1g-dev g++ python3-dev
folder="${DMLAB_FOLDER:-$HOME/.cache/dmlab}"
[ -d "$folder" ] || git clone --depth 1 https://github.com/google-deepmind/lab "$folder"
cd "$folder"
bazel build -c opt --python_version=PY3 //python/pip_package:build_pip_package
./bazel-bin/python/pip_package/build_pip_package "$folder/wheel"
python -m pip install --no-deps --force-reinstall "$folder"/wheel/*.whl
python -m pip install dm_env numpy
python -c "import deepmind_lab; print('DeepMind Lab is installed')"
