# The image: the program vestibule, with links to run it as edge, regional, global or nats-server.
# FROM scratch: nothing else is in it, no shell either.
#
# `make image` builds the files into bin/image, writes bin/vestibule-image.tar without any
# engine, and loads it where a Docker engine answers. This file is for builders that want
# one, after `make image-files`:
#
#     docker build --tag vestibule:VERSION --build-arg VERSION=VERSION --build-arg REVISION=COMMIT --build-arg SOURCE=URL .
FROM scratch

ARG VERSION=
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.title="vestibule"
LABEL org.opencontainers.image.description="A waiting room that holds a hard limit across regions: the vestibule command, with links to run edge, regional, global and nats-server."
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.version=$VERSION
LABEL org.opencontainers.image.revision=$REVISION
LABEL org.opencontainers.image.source=$SOURCE

COPY bin/image/ /
COPY --chown=65532:65532 bin/data/ /data/

# No name: the image has no list of users.
USER 65532:65532
# Programs keep data below it by default: the user may write nowhere else.
WORKDIR /data
ENTRYPOINT ["/vestibule"]
