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
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A kind is a set of ways in which YAML writes a scalar.
type kind uint8

const (
	isText kind = 1 << iota
	isInteger
	isFloat
	isBoolean
)

// shortest is the least a timeout can be. A timeout of nothing would be taken
// for none at all by much of net/http.
const shortest = time.Millisecond

// read makes a leaf that stores in p what parse makes of a text, if it is good.
func read[T any](p *T, kinds kind, want string, parse func(string) (v T, good bool)) leaf {
	set := func(s string) bool {
		v, good := parse(s)
		if good {
			*p = v
		}
		return good
	}
	return leaf{want: want, kinds: kinds, set: set}
}

func text(p *string) leaf {
	return read(p, isText, "text", func(s string) (string, bool) { return s, true })
}

// store reads where held calls are kept.
func store(p *Secret) leaf {
	return read(p, isText, "memory:, desk:, sqlite:FILE, or a postgres:// or redis:// URL", func(s string) (Secret, bool) {
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

// storeKeys reads what stored calls are encrypted with.
func storeKeys(p *Secret) leaf {
	return read(p, isText, "NAME:BASE64 with 32 bytes, several separated by commas, or empty", func(s string) (Secret, bool) {
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

func boolean(p *bool) leaf {
	return read(p, isBoolean, "true or false", func(s string) (bool, bool) {
		return s == "true", s == "true" || s == "false"
	})
}

// number reads a whole number from 1 to most.
func number(p *int, most int) leaf {
	want := fmt.Sprintf("a whole number from 1 to %d", most)
	if most == 1 {
		want = "1"
	}
	return read(p, isInteger, want, func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= 1 && n <= most
	}).between(1, int64(most))
}

// upTo reads a whole number from 0 to most.
func upTo(p *int, most int) leaf {
	return read(p, isInteger, fmt.Sprintf("a whole number from 0 to %d", most), func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= 0 && n <= most
	}).between(0, int64(most))
}

func fraction(p *float64) leaf {
	return read(p, isInteger|isFloat, "a number from 0 to 1", func(s string) (float64, bool) {
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil && f >= 0 && f <= 1
	}).between(0, 1)
}

func duration(p *time.Duration, least time.Duration) leaf {
	want := "a duration with a unit, such as 30s or 1m30s"
	if least > 0 {
		want += fmt.Sprintf(", of at least %s", least)
	}
	return read(p, isText, want, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= least
	}).called("duration").like(durationPattern)
}

// limit reads a duration, or none.
func limit(p *time.Duration) leaf {
	return read(p, isText, "a duration of at least 1s with a unit, such as 5m, or none", func(s string) (time.Duration, bool) {
		if s == "none" {
			return 0, true
		}
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= time.Second
	}).called("duration").like(durationPattern + "|^none$")
}

// units are the endings a size may have. Longer ones come before their own ends.
var units = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"B", 1},
}

func size(p *int64, least, most int64) leaf {
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

func level(p *slog.Level) leaf {
	var word string
	l := oneOf(&word, "debug", "info", "warn", "error")
	return read(p, l.kinds, l.want, func(s string) (v slog.Level, good bool) {
		return v, l.set(s) && v.UnmarshalText([]byte(s)) == nil
	}).among(l.shape.words...)
}

func oneOf(p *string, words ...string) leaf {
	want := words[0]
	if last := len(words) - 1; last > 0 {
		want = strings.Join(words[:last], ", ") + " or " + words[last]
	}
	return read(p, isText, want, func(s string) (string, bool) { return s, slices.Contains(words, s) }).among(words...)
}

// choice reads one of two words, and stores whether it is the first.
func choice(p *bool, yes, no string) leaf {
	var word string
	l := oneOf(&word, yes, no)
	return read(p, l.kinds, l.want, func(s string) (bool, bool) { return s == yes, l.set(s) }).among(yes, no)
}

func mode(p *bool) leaf { return choice(p, "observe", "enforce") }

// line reads text that can be shown to people and models as it is.
func line(p *string) leaf {
	return read(p, isText, "text on one line", func(s string) (string, bool) { return s, isLine(s) })
}

func isLine(s string) bool { return !strings.ContainsFunc(s, unicode.IsControl) }

// each reads one more text of a list.
func each(p *[]string, want string, good func(string) bool) leaf {
	return read(p, isText, want, func(s string) ([]string, bool) { return append(*p, s), good(s) })
}

func tool(p *[]string) leaf {
	return each(p, "the name of a tool", func(s string) bool { return s != "" && isLine(s) })
}

func metaName(p *[]string) leaf {
	return each(p, "the name of a member of _meta, or *", func(s string) bool { return s != "" && isLine(s) })
}

func queryName(p *[]string) leaf {
	return each(p, "the name of a query parameter", func(s string) bool { return s != "" && isLine(s) })
}

func bearer(p *Secret) leaf {
	return read(p, isText, "printable ASCII characters without spaces, or empty", func(s string) (Secret, bool) {
		return NewSecret(s), !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	})
}

func timezone(p *string) leaf {
	return read(p, isText, "the name of a time zone, such as Europe/Berlin", func(s string) (string, bool) {
		_, err := time.LoadLocation(s)
		return s, err == nil && s != "" && s != "Local" // which is another one on every machine
	})
}

func name(p *string) leaf {
	return read(p, isText, "at most 63 lower-case letters, digits and hyphens", func(s string) (string, bool) { return s, isName(s) }).like("^[-a-z0-9]{1,63}$")
}

func isName(s string) bool {
	return s != "" && len(s) <= 63 && only(s, lower+digits+"-")
}

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

// only reports whether s is made of nothing but the given ASCII characters.
func only(s, characters string) bool {
	return strings.Trim(s, characters) == ""
}

func address(p *string) leaf {
	return read(p, isText, "host:port, such as 127.0.0.1:8080", func(s string) (string, bool) {
		h, port, err := net.SplitHostPort(s)
		return s, err == nil && isPort(port) && (h == "" || isHost(h))
	})
}

func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && len(s) <= 253 && only(s, letters+digits+"-._")
}

// loopback reports whether only this machine can reach a listener at addr.
func loopback(addr string) bool {
	h, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(h)
	return strings.EqualFold(h, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// collide reports whether one process certainly cannot listen at both a and b, which are
// addresses. Names besides localhost are not looked up.
func collide(a, b string) bool {
	hostA, portA := listenAddress(a)
	hostB, portB := listenAddress(b)
	return portA == portB && portA != 0 && (hostA == "" || hostB == "" || hostA == hostB)
}

// listenAddress returns the host of a listener in one spelling, or nothing if it means all
// addresses of the machine, and the port.
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

func endpoint(p **url.URL) leaf {
	const want = "an http or https URL with a host, and without user, password or fragment"
	return read(p, isText, want, func(s string) (*url.URL, bool) {
		u, err := url.Parse(s)
		return u, err == nil &&
			(u.Scheme == "http" || u.Scheme == "https") &&
			hasHost(u) && u.User == nil && !strings.Contains(s, "#")
	})
}

func hasHost(u *url.URL) bool {
	return isHost(u.Hostname()) && (u.Port() == "" || isPort(u.Port())) && !strings.HasSuffix(u.Host, ":")
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// optional lets l be the empty text, which leaves its value as it is.
func optional(l leaf) leaf {
	set := l.set
	l.want += ", or empty"
	l.shape.empty = true
	l.set = func(s string) bool { return s == "" || set(s) }
	return l
}

// mcpPath keeps to characters that mean themselves in a URL and to a shape
// that every router takes for the same.
func mcpPath(p *[]string) leaf {
	return read(p, isText, "a path such as /mcp, of letters, digits and -._~", func(s string) ([]string, bool) {
		return []string{s}, len(s) > 1 && s[0] == '/' && path.Clean(s) == s && only(s, letters+digits+"-._~/")
	})
}

func host(p *[]string) leaf {
	return read(p, isText, "a host name or address, with or without a port", func(s string) ([]string, bool) {
		u, err := url.Parse("//" + s)
		return append(*p, strings.ToLower(s)), err == nil && u.Host == s && hasHost(u)
	})
}

func origin(p *[]string) leaf {
	return read(p, isText, "an origin such as https://app.example.com, without a path", func(s string) ([]string, bool) {
		u, err := url.Parse(s)
		return append(*p, strings.ToLower(s)), err == nil && hasHost(u) && strings.EqualFold(u.Scheme+"://"+u.Host, s)
	})
}

func headerValue(p map[string]Secret, key string) leaf {
	set := func(s string) bool {
		p[key] = NewSecret(s)
		return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
	}
	return leaf{want: "a valid HTTP header value on one line", kinds: isText, set: set}
}

// credentialHeader reads the name of a header that holds a client's credential.
func credentialHeader(p *[]string) leaf {
	const want = "the name of an HTTP header that the gate does not use itself"
	return read(p, isText, want, func(s string) ([]string, bool) {
		name := textproto.CanonicalMIMEHeaderKey(s)
		return append(*p, name), headerName(s) && !strings.HasPrefix(name, "Mcp-") && !strings.Contains(reserved, " "+name+" ")
	})
}

func headerName(s string) bool {
	return s != "" && only(s, letters+digits+"!#$%&'*+-.^_`|~")
}
