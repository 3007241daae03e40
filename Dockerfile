# CPU by default; a CUDA build of torch by build argument:
#   docker build -t scopereg .
#   docker build -t scopereg:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
#   mkdir -p out && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/out:/data/out" scopereg demo
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=eval,cpu

WORKDIR /data
COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir -c /src/constraints.txt --index-url "$TORCH_INDEX" torch \
 && pip install --no-cache-dir -c /src/constraints.txt "/src[$EXTRAS]" \
 && useradd --create-home scopereg && chown scopereg /data

USER scopereg
ENTRYPOINT ["scopereg"]
CMD ["doctor"]
