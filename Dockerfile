# Reverie in a container, as a user without privileges:
#
#   docker build -t reverie .
#   docker run --rm -v "$PWD/runs:/work/runs" reverie train CartPole-v1:ppo
#
# Linux builds of torch bring the CUDA libraries (several GB). For a small CPU image pass the address of
# PyTorch's CPU index, which its installation page names: docker build --build-arg TORCH_INDEX=<address> .
FROM python:3.11-slim

ARG TORCH_INDEX=""
ENV PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    SDL_VIDEODRIVER=dummy

# torch alone first: this large layer stays cached while only our own code changes.
WORKDIR /opt/reverie
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch numpy

COPY pyproject.toml README.md LICENSE ./
COPY reverie ./reverie
RUN pip install --no-cache-dir -c constraints.txt ".[box2d,video]"

# The id of the usual first user, so that a mounted runs folder can be written.
RUN useradd --create-home --uid 1000 reverie && install -d -o reverie -g reverie /work /work/runs
USER reverie
WORKDIR /work
VOLUME /work/runs

ENTRYPOINT ["reverie"]
CMD ["--help"]
