# CPU by default; a CUDA build of torch by build argument:
#   docker build -t scopereg .
#   docker build -t scopereg:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
#   mkdir -p out && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/out:/data/out" scopereg demo
# The base by its digest, which a registry tells (docker buildx imagetools inspect python:3.11-slim), pins every byte of it:
#   docker build --build-arg BASE=python:3.11-slim@sha256:... .
ARG BASE=python:3.11-slim
FROM $BASE

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=eval

WORKDIR /data
COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir -c /src/constraints.txt --index-url "$TORCH_INDEX" torch \
 && pip install --no-cache-dir -c /src/constraints.txt "/src[$EXTRAS]" \
 && useradd --create-home scopereg && chown scopereg /data

USER scopereg
ENTRYPOINT ["scopereg"]
CMD ["doctor"]
