# The image has the program, the certificates of public authorities, and an empty
# directory for state: no shell, no libraries, no other user than 65532. Nothing
# but /var/lib/thoughtgate is written to, so run it with a read-only root:
#
#   docker run --read-only --cap-drop ALL -p 8080:8080 -p 127.0.0.1:8081:8081 \
#     -v ./thoughtgate.yaml:/etc/thoughtgate/thoughtgate.yaml:ro -v thoughtgate:/var/lib/thoughtgate IMAGE
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH VERSION COMMIT DATE
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -funcalign=4 -X github.com/thoughtgate/thoughtgate-go/internal/version.number=$VERSION -X github.com/thoughtgate/thoughtgate-go/internal/version.commit=$COMMIT -X github.com/thoughtgate/thoughtgate-go/internal/version.date=$DATE" \
    -o /out/thoughtgate ./cmd/thoughtgate
RUN mkdir /out/state

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/thoughtgate /usr/bin/thoughtgate
COPY --from=build --chown=65532:65532 /out/state /var/lib/thoughtgate
ENV THOUGHTGATE_STATE_DIR=/var/lib/thoughtgate
USER 65532:65532
VOLUME /var/lib/thoughtgate
EXPOSE 8080 8081
ENTRYPOINT ["/usr/bin/thoughtgate"]
CMD ["serve", "--config", "/etc/thoughtgate/thoughtgate.yaml"]
