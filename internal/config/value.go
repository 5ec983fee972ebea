package config

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
)

// A kind is a set of ways in which YAML writes a scalar.
type kind uint8

const (
	isText kind = 1 << iota
	isInteger
	isFloat
	isBoolean
)

// shortestTimeout is the shortestTimeout timeout. To net/http, 0 often means no timeout.
const shortestTimeout = time.Millisecond

// read returns a Leaf that parses a text and stores the value in p if it is valid.
func read[T any](p *T, kinds kind, want string, parse func(string) (v T, valid bool)) Leaf {
	set := func(s string) bool {
		v, valid := parse(s)
		if valid {
			*p = v
		}
		return valid
	}
	return Leaf{want: want, kinds: kinds, set: set}
}

// Read returns a Leaf for a value that YAML writes as text. Parse returns the value and
// whether it is valid; want completes the message "must be …".
func Read[T any](p *T, want string, parse func(string) (v T, valid bool)) Leaf {
	return read(p, isText, want, parse)
}

// Text parses any text.
func Text(p *string) Leaf {
	return Read(p, "text", func(s string) (string, bool) { return s, true })
}

func store(p *Secret) Leaf {
	return Read(p, "memory:, desk:, sqlite:FILE, or a postgres:// or redis:// URL", func(s string) (Secret, bool) {
		scheme, rest, _ := strings.Cut(s, ":")
		switch scheme {
		case "memory", "desk":
			return NewSecret(s), rest == ""
		case "sqlite":
			return NewSecret(s), rest != "" && !strings.HasPrefix(rest, "//")
		case "postgres", "postgresql", "redis", "rediss":
			u, err := url.Parse(s)
			return NewSecret(s), err == nil && u.Host != ""
		default:
			return Secret{}, false
		}
	})
}

// storeKeys parses the keys that encrypt stored calls.
func storeKeys(p *Secret) Leaf {
	return Read(p, "NAME:BASE64 with 32 bytes, several separated by commas, or empty", func(s string) (Secret, bool) {
		for part := range strings.SplitSeq(s, ",") {
			name, secret, _ := strings.Cut(strings.TrimSpace(part), ":")
			key, err := base64.StdEncoding.DecodeString(secret)
			if s != "" && (err != nil || len(key) != 32 || name == "" || len(name) > 32 || !only(name, letters+digits+"-_.")) {
				return Secret{}, false
			}
		}
		return NewSecret(s), true
	})
}

// Bool parses true or false.
func Bool(p *bool) Leaf {
	return read(p, isBoolean, "true or false", func(s string) (bool, bool) {
		return s == "true", s == "true" || s == "false"
	})
}

// OptionalBool parses true or false. A value that is not given stays nil.
func OptionalBool(p **bool) Leaf {
	return read(p, isBoolean, "true or false", func(s string) (*bool, bool) {
		return new(s == "true"), s == "true" || s == "false"
	})
}

// number parses a whole number from 1 to most.
func number(p *int, most int) Leaf { return between(p, 1, most) }

// upTo parses a whole number from 0 to most.
func upTo(p *int, most int) Leaf { return between(p, 0, most) }

func between(p *int, least, most int) Leaf {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	if least == most {
		want = strconv.Itoa(most)
	}
	return read(p, isInteger, want, func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= least && n <= most
	}).between(int64(least), int64(most))
}

func fraction(p *float64) Leaf {
	return read(p, isInteger|isFloat, "a number from 0 to 1", func(s string) (float64, bool) {
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil && f >= 0 && f <= 1
	}).between(0, 1)
}

// Duration parses a duration with a unit.
func Duration(p *time.Duration, least time.Duration) Leaf {
	want := "a duration with a unit, such as 30s or 1m30s"
	if least > 0 {
		want += fmt.Sprintf(", of at least %s", least)
	}
	return Read(p, want, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= least
	}).called("duration").like(durationPattern)
}

// limit parses a duration, or the word none.
func limit(p *time.Duration) Leaf {
	return Read(p, "a duration of at least 1s with a unit, such as 5m, or none", func(s string) (time.Duration, bool) {
		if s == "none" {
			return 0, true
		}
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= time.Second
	}).called("duration").like(durationPattern + "|^none$")
}

// units are the suffixes of sizes. A suffix comes after those that end with it.
var units = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"B", 1},
}

func size(p *int64, least, most int64) Leaf {
	want := fmt.Sprintf("a size from %d to %d bytes, such as 65536, 64KiB or 1MiB", least, most)
	return read(p, isText|isInteger, want, func(s string) (int64, bool) {
		times := int64(1)
		for _, u := range units {
			if count, ok := strings.CutSuffix(s, u.name); ok {
				s, times = count, u.bytes
				break
			}
		}
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || n > most/times { // before the product can overflow
			return 0, false
		}
		return n * times, n*times >= least
	}).called("size").between(least, most).like(sizePattern)
}

func level(p *slog.Level) Leaf {
	var word string
	l := OneOf(&word, "debug", "info", "warn", "error")
	return read(p, l.kinds, l.want, func(s string) (v slog.Level, valid bool) {
		return v, l.set(s) && v.UnmarshalText([]byte(s)) == nil
	}).among(l.shape.words...)
}

// OneOf parses one of some words.
func OneOf[T ~string](p *T, words ...string) Leaf {
	return Read(p, alternatives(words), func(s string) (T, bool) { return T(s), slices.Contains(words, s) }).among(words...)
}

// alternatives joins words with commas and "or".
func alternatives(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// choice parses one of two words, and stores whether it is the first.
func choice(p *bool, yes, no string) Leaf {
	var word string
	l := OneOf(&word, yes, no)
	return read(p, l.kinds, l.want, func(s string) (bool, bool) { return s == yes, l.set(s) }).among(yes, no)
}

func mode(p *bool) Leaf { return choice(p, "observe", "enforce") }

// Line parses text without control characters.
func Line(p *string) Leaf {
	return Read(p, "text on one line", func(s string) (string, bool) { return s, IsLine(s) })
}

// IsLine reports whether s has no control characters.
func IsLine(s string) bool { return !strings.ContainsFunc(s, unicode.IsControl) }

// isLineOfText reports whether s is not empty and has no control characters.
func isLineOfText(s string) bool { return s != "" && IsLine(s) }

const wantTool = "the name of a tool"

// Each parses one text and appends it to a list.
func Each(p *[]string, want string, valid func(string) bool) Leaf {
	return Read(p, want, func(s string) ([]string, bool) { return append(*p, s), valid(s) })
}

// Bearer parses a token for an HTTP header.
func Bearer(p *Secret) Leaf {
	return Read(p, "printable ASCII characters without spaces, or empty", func(s string) (Secret, bool) {
		return NewSecret(s), !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	})
}

func timezone(p *string) Leaf {
	return Read(p, "the name of a time zone, such as Europe/Berlin", func(s string) (string, bool) {
		_, err := time.LoadLocation(s)
		return s, err == nil && s != "" && s != "Local" // differs between machines
	})
}

func name(p *string) Leaf {
	return Read(p, "at most 63 lower-case letters, digits and hyphens", func(s string) (string, bool) { return s, IsName(s) }).like("^[-a-z0-9]{1,63}$")
}

// IsName reports whether s can be the name of an upstream.
func IsName(s string) bool {
	return s != "" && len(s) <= 63 && only(s, lower+digits+"-")
}

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

// only reports whether s consists of the given ASCII characters.
func only(s, characters string) bool {
	return strings.Trim(s, characters) == ""
}

func address(p *string) Leaf {
	return Read(p, "host:port, such as 127.0.0.1:8080", func(s string) (string, bool) {
		h, port, err := net.SplitHostPort(s)
		return s, err == nil && isPort(port) && (h == "" || IsHost(h))
	})
}

// agentAddress parses an address for agents, which can also be a Unix socket.
func agentAddress(p *string) Leaf {
	tcp := address(p)
	return Read(p, "host:port, such as 127.0.0.1:8080, or unix:/PATH", func(s string) (string, bool) {
		if path, ok := localuser.SocketPath(s); ok {
			return s, filepath.IsAbs(path) && len(path) <= maxSocketPath
		}
		return s, tcp.set(s)
	})
}

// maxSocketPath is the longest path of a socket that every system accepts.
const maxSocketPath = 103

// isSocket reports whether agents connect to a Unix socket.
func isSocket(address string) bool {
	_, ok := localuser.SocketPath(address)
	return ok
}

// IsHost reports whether s is an IP address or looks like a host name.
func IsHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && len(s) <= 253 && only(s, letters+digits+"-._")
}

// loopback reports whether addr, a host:port, is reachable from this machine only.
func loopback(addr string) bool {
	h, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(h)
	return isSocket(addr) || strings.EqualFold(h, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// collide reports whether listeners at a and b certainly conflict. Host names other than
// localhost are not resolved.
func collide(a, b string) bool {
	hostA, portA := listenAddress(a)
	hostB, portB := listenAddress(b)
	return portA == portB && portA != 0 && (hostA == "" || hostB == "" || hostA == hostB)
}

// listenAddress splits a listener's address. The host is normalized, and empty if it
// means all addresses of the machine.
func listenAddress(addr string) (host string, port uint64) {
	host, text, _ := net.SplitHostPort(addr)
	port, _ = strconv.ParseUint(text, 10, 16)
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return strings.ToLower(host), port
	case ip.Unmap().IsUnspecified():
		return "", port
	default:
		return ip.Unmap().String(), port
	}
}

// URL parses an http or https URL.
func URL(p **url.URL) Leaf {
	const want = "an http or https URL with a host, and without user, password or fragment"
	return Read(p, want, func(s string) (*url.URL, bool) {
		u, err := url.Parse(s)
		return u, err == nil &&
			(u.Scheme == "http" || u.Scheme == "https") &&
			HasHost(u) && u.User == nil && !strings.Contains(s, "#")
	})
}

// HasHost reports whether u has a host, and a valid port if it has one.
func HasHost(u *url.URL) bool {
	return IsHost(u.Hostname()) && (u.Port() == "" || isPort(u.Port())) && !strings.HasSuffix(u.Host, ":")
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// Optional returns l with the empty text as a valid value, which leaves the default.
func Optional(l Leaf) Leaf {
	set := l.set
	l.want += ", or empty"
	l.shape.empty = true
	l.set = func(s string) bool { return s == "" || set(s) }
	return l
}

// wantPath describes a path that needs no escapes and that every router reads the same way.
const wantPath = "a path such as /mcp, of letters, digits and -._~"

func isPath(s string) bool {
	return len(s) > 1 && s[0] == '/' && path.Clean(s) == s && only(s, letters+digits+"-._~/")
}

// mcpPath parses a path.
func mcpPath(p *[]string) Leaf {
	return Read(p, wantPath, func(s string) ([]string, bool) { return []string{s}, isPath(s) })
}

func host(p *[]string) Leaf {
	return Read(p, "a host name or address, with or without a port", func(s string) ([]string, bool) {
		u, err := url.Parse("//" + s)
		return append(*p, strings.ToLower(s)), err == nil && u.Host == s && HasHost(u)
	})
}

func origin(p *[]string) Leaf {
	return Read(p, "an origin such as https://app.example.com, without a path", func(s string) ([]string, bool) {
		u, err := url.Parse(s)
		return append(*p, strings.ToLower(s)), err == nil && HasHost(u) && strings.EqualFold(u.Scheme+"://"+u.Host, s)
	})
}

func headerValue(p map[string]Secret, key string) Leaf {
	set := func(s string) bool {
		p[key] = NewSecret(s)
		return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
	}
	return Leaf{want: "a valid HTTP header value on one line", kinds: isText, set: set}
}

// credentialHeader parses the name of a header with a credential.
func credentialHeader(p *[]string) Leaf {
	return Read(p, wantHeader, func(s string) ([]string, bool) {
		name, free := freeHeader(s)
		return append(*p, name), free
	})
}

const wantHeader = "the name of an HTTP header that the gate does not use itself"

// freeHeader returns the canonical name of a header, and whether it is not reserved.
func freeHeader(s string) (name string, free bool) {
	name = textproto.CanonicalMIMEHeaderKey(s)
	return name, headerName(s) && !strings.HasPrefix(name, "Mcp-") && !strings.Contains(reserved, " "+name+" ")
}

func headerName(s string) bool {
	return s != "" && only(s, letters+digits+"!#$%&'*+-.^_`|~")
}
