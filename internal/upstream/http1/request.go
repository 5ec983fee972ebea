package http1

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Errors of requests that are not sent.
var (
	errMethod = errors.New("the method of the request is not valid")
	errTarget = errors.New("the target of the request is not valid")
	errHost   = errors.New("the host of the request is not valid")
)

// headBuffers are reused buffers for request heads and small bodies.
var headBuffers = sync.Pool{New: func() any { return new([]byte) }}

// appendHead appends the head of the request to p. It refuses a head that could be read as
// something else than one request.
func (r *Request) appendHead(p []byte, host string) ([]byte, error) {
	if err := r.checkLine(host); err != nil {
		return p, err
	}
	p = append(p, r.Method...)
	p = append(p, ' ')
	p = append(p, r.Target...)
	p = append(p, " HTTP/1.1\r\nHost: "...)
	p = append(p, host...)
	p = append(p, "\r\n"...)
	p, err := appendFields(p, r.Header, r.Omit)
	if err != nil {
		return p, err
	}
	if p, err = appendFields(p, r.Extra, nil); err != nil {
		return p, err
	}
	if len(r.Body) > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		p = append(p, "Content-Length: "...)
		p = strconv.AppendInt(p, int64(len(r.Body)), 10)
		p = append(p, "\r\n"...)
	}
	if r.Fresh {
		p = append(p, "Connection: close\r\n"...)
	}
	return append(p, "\r\n"...), nil
}

// checkLine checks the method, target and host.
func (r *Request) checkLine(host string) error {
	switch {
	case !isToken(r.Method):
		return errMethod
	//mutate:swap "|| !isVisible(r.Target)" "" TestInvalidRequests a target has spaces and line ends
	case !strings.HasPrefix(r.Target, "/") || !isVisible(r.Target):
		return errTarget
	case host == "" || !isVisible(host):
		return errHost
	default:
		return nil
	}
}

// appendFields appends the headers that are sent. It checks all headers that are not omitted.
func appendFields(p []byte, header http.Header, omit func(name string) bool) ([]byte, error) {
	for name, values := range header {
		if omit != nil && omit(name) {
			continue
		}
		if !isToken(name) {
			return p, fmt.Errorf("the name of header %q is not valid", name)
		}
		sent := !isFramingHeader(name)
		for _, value := range values {
			if !isFieldValue(value) {
				return p, fmt.Errorf("the value of header %q is not valid", name) // it may be a secret
			}
			if sent {
				p = append(p, name...)
				p = append(p, ": "...)
				p = append(p, strings.Trim(value, " \t")...)
				p = append(p, "\r\n"...)
			}
		}
	}
	return p, nil
}

// isFramingHeader reports whether a header decides where a message ends or whether its connection
// is kept. Only this package sets those.
func isFramingHeader(name string) bool {
	switch len(name) {
	case len("TE"), len("Host"), len("Expect"), len("Trailer"), len("Connection"), len("Content-Length"),
		len("Proxy-Connection"), len("Transfer-Encoding"):
	default:
		return false
	}
	for _, own := range []string{
		"Host", "Content-Length", "Transfer-Encoding", "Trailer", "TE", "Connection", "Proxy-Connection", "Keep-Alive", "Upgrade", "Expect",
	} {
		//mutate:swap "strings.EqualFold(name, own)" `name == own+"x"` TestFramingHeaders a caller frames the request
		if strings.EqualFold(name, own) {
			return true
		}
	}
	return false
}

// isToken reports whether s is an HTTP token.
func isToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// tokenBytes are the characters of tokens.
var tokenBytes = func() (is [256]bool) {
	for c := range is {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		is[c] = alphanumeric || c < 0x80 && strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return is
}()

// isVisible reports whether s has only visible ASCII characters.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// isFieldValue reports whether s may be the value of a header: no line ends and no other control
// characters except tabs.
func isFieldValue(s string) bool {
	for i := range len(s) {
		//mutate:swap `s[i] < ' ' && s[i] != '\t' || ` "" TestInvalidRequests line ends in headers are sent
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}
