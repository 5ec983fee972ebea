package callexport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/otlp"
)

// A Target describes a receiver.
type Target struct {
	URL     string            // http and https: OTLP; tcp and tls: syslog
	Headers map[string]string // of OTLP
	TLS     *tls.Config
	Host    string // the name of this machine, for syslog
	Version string // of this program
}

// Open returns the receiver of a target, without a connection. Its error does not quote the URL,
// which may contain a password.
func Open(t Target) (Receiver, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, errTarget
	}
	switch u.Scheme {
	case "http", "https":
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = t.TLS
		client, err := otlp.New(otlp.Config{
			Endpoint: t.URL, Path: "/v1/logs", Items: "log records", Headers: t.Headers, Version: t.Version, Transport: transport,
		})
		return &collector{client, t.Version}, err
	case "tcp", "tls":
		if u.Port() == "" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, errors.New("a URL of syslog has a host and a port, and nothing else, such as tls://siem.example.com:6514")
		}
		s := &syslog{address: u.Host, host: headerField(t.Host, 255)}
		if u.Scheme == "tls" {
			s.tls = t.TLS.Clone()
			if s.tls == nil {
				s.tls = &tls.Config{MinVersion: tls.VersionTLS12}
			}
		}
		return s, nil
	default:
		return nil, errTarget
	}
}

var errTarget = errors.New("it is not an http, https, tcp or tls URL")

// ParseHeaders reads the value of OTEL_EXPORTER_OTLP_HEADERS: NAME=VALUE,NAME=VALUE, with
// percent-encoded values.
func ParseHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !found || name == "" || err != nil {
			return nil, fmt.Errorf("entry %d is not NAME=VALUE with a percent-encoded value", len(headers)+1) // a value may be a secret
		}
		headers[name] = value
	}
	return headers, nil
}
