package policy

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Rules match the spelling of names, but servers may read another name: most put URIs into
// the WHATWG normal form, others decode escapes, remove fragments, or fold Unicode. So a call
// is denied if its name is not in normal form, or if the policy decides differently for
// another name that a server may read.

// misspelled returns the reason why a name is not in normal form, or "".
func misspelled(kind Kind, name string) string {
	switch {
	//mutate:false TestAmbiguousNamesAreRefused a URI that is not in normal form is judged
	case kind == Resource && isURL(name):
		return misspelledURL(name)
	case plainASCII(name):
		return hiddenPath(kind, name)
	case invisible(name):
		return "the name has control or invisible characters, or begins or ends with white space"
	case !norm.NFC.IsNormalString(name):
		return "the name is not in Unicode normal form NFC"
	default:
		return hiddenPath(kind, name)
	}
}

// hiddenPath checks the name of a resource that is not a URL, such as a relative path.
func hiddenPath(kind Kind, name string) string {
	if kind != Resource {
		return ""
	}
	switch {
	case strings.Contains(name, `\`):
		return "the URI has a backslash"
	case hasDotSegment(name):
		return "the URI has a segment . or .."
	case hasNeedlessEscape(name):
		return "the URI has an unnecessary escape"
	case strings.Contains(pathOf(name), "//"):
		return emptySegmentProblem
	default:
		return hiddenByEscapes(name)
	}
}

const emptySegmentProblem = "the URI has an empty segment in its path"

// maxEscapes is the most times that a path may be escaped.
const maxEscapes = 4

// hiddenByEscapes checks the path of uri for servers that decode escapes, even several times,
// before they parse it.
func hiddenByEscapes(uri string) string {
	path := pathOf(uri)
	for range maxEscapes {
		plain := decoded(path)
		switch {
		case plain == path:
			return ""
		//mutate:false TestAmbiguousNamesAreRefused escapes hide the URI that a server reads
		case dotSegmentIn(plain):
			return "the URI has an escaped segment . or .."
		case invisible(plain):
			return "the URI has an escaped control or invisible character"
		case !norm.NFC.IsNormalString(plain):
			return "the URI is not in Unicode normal form NFC"
		}
		path = plain
	}
	return "the URI is escaped too often"
}

// pathOf returns uri without its query and fragment.
func pathOf(uri string) string {
	if i := strings.IndexAny(uri, "?#"); i >= 0 {
		return uri[:i]
	}
	return uri
}

// plainASCII reports whether name consists of visible ASCII characters.
func plainASCII(name string) bool {
	for i := range len(name) {
		if name[i] <= ' ' || name[i] >= 0x7f {
			return false
		}
	}
	return true
}

// invisible reports whether name has characters that are not displayed and that servers strip
// or ignore.
func invisible(name string) bool {
	return strings.TrimSpace(name) != name || strings.ContainsFunc(name, Invisible)
}

// Invisible reports whether r is a control character or a character that is not displayed.
func Invisible(r rune) bool {
	return unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// withoutVariables returns a URI template with a plain letter in place of each variable.
func withoutVariables(template string) string {
	var b strings.Builder
	for {
		before, rest, opened := strings.Cut(template, "{")
		b.WriteString(before)
		_, after, closed := strings.Cut(rest, "}")
		if !opened || !closed {
			return b.String() + template[len(before):]
		}
		b.WriteByte('x')
		template = after
	}
}

// isURL reports whether name begins with a scheme, after removing the white space and control
// characters that parsers strip.
func isURL(name string) bool {
	name = strings.TrimLeftFunc(name, func(r rune) bool { return r <= ' ' })
	for i, c := range name {
		switch {
		case c == ':':
			return i > 0
		case c == '\t' || c == '\n' || c == '\r':
		case isLetter(c):
		case i > 0 && (isDigit(c) || strings.ContainsRune("+-.", c)):
		default:
			return false
		}
	}
	return false
}

func isLetter(c rune) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isDigit(c rune) bool { return c >= '0' && c <= '9' }

// Characters that need no escape in the parts of a URL, by all versions of the standard.
const (
	inUserinfo = "-._~!$&'()*+,%"
	inHost     = inUserinfo + ";="
	inPath     = inHost + ":@/[]"
	inTail     = inPath + "?"
)

// special are the special schemes of the WHATWG URL standard, with their default ports.
var special = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "file": ""}

// misspelledURL returns the reason why uri is not in the normal form of the WHATWG URL
// standard, or "".
func misspelledURL(uri string) string {
	scheme, rest, _ := strings.Cut(uri, ":")
	rest, fragment, _ := strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	port, isSpecial := special[scheme]
	authority, path, given := splitAuthority(rest)
	if problem := cmp.Or(misspelledScheme(scheme), misspelledText(uri, path, query, fragment)); problem != "" {
		return problem
	}
	switch {
	case isSpecial && (!given || path == ""):
		return "the URI has no authority or no path: write " + scheme + "://HOST/PATH"
	case emptySegment(scheme, path):
		return emptySegmentProblem
	case isSpecial && strings.Contains(query, "'"):
		return "the URI has a quote in its query that must be escaped"
	case isSpecial:
		return misspelledHost(scheme, authority, port)
	case given:
		return misspelledAuthority(authority)
	default:
		return ""
	}
}

func misspelledScheme(scheme string) string {
	if scheme != strings.ToLower(scheme) || !consistsOf(scheme, "+-.") {
		return "the scheme of the URI is not in lower case"
	}
	return ""
}

// misspelledText checks the path, the query and the fragment.
func misspelledText(uri, path, query, fragment string) string {
	switch {
	case !consistsOf(query+fragment, inTail):
		return "the URI has a character in its query or fragment that must be escaped"
	case !consistsOf(path, inPath):
		return "the URI has a character in its path that must be escaped"
	case badEscape(uri) || hasNeedlessEscape(uri):
		return "the URI has a malformed or unnecessary escape"
	case hasDotSegment(uri):
		return "the URI has a segment . or .."
	default:
		return hiddenByEscapes(uri)
	}
}

// splitAuthority splits //AUTHORITY/PATH, and reports whether there is an authority.
func splitAuthority(rest string) (authority, path string, given bool) {
	after, given := strings.CutPrefix(rest, "//")
	if !given {
		return "", rest, false
	}
	if i := strings.IndexByte(after, '/'); i >= 0 {
		return after[:i], after[i:], true
	}
	return after, "", true
}

// emptySegment reports whether path has an empty segment, which servers may remove. Paths may
// contain a URL, except those of files. A path without a leading slash has no segments.
func emptySegment(scheme, path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	if scheme != "file" {
		path = strings.ReplaceAll(path, "://", ":/")
	}
	return strings.Contains(path, "//")
}

// misspelledHost checks the authority of a special scheme.
func misspelledHost(scheme, authority, standardPort string) string {
	host, port, hasPort := cutPort(authority)
	switch {
	case strings.Contains(authority, "@"):
		return "the URI has credentials in it"
	case scheme == "file" && (hasPort || host == "localhost"):
		return "the URI of a file has a port, or localhost, in it"
	case scheme == "file" && host == "":
		return ""
	case !plainHost(host):
		return "the host of the URI is not in its normal form"
	case hasPort && (!plainPort(port) || port == standardPort):
		return "the port of the URI is not in its normal form"
	default:
		return ""
	}
}

// misspelledAuthority checks the authority of any other scheme.
func misspelledAuthority(authority string) string {
	userinfo, hostPort, hasUser := strings.Cut(authority, "@")
	if !hasUser {
		userinfo, hostPort = "", authority
	}
	host, port, hasPort := cutPort(hostPort)
	switch {
	case hasUser && !plainUser(userinfo):
		return "the user in the URI is not in its normal form"
	case (hasUser || hasPort) && host == "", !consistsOf(host, inHost) && !plainAddress(host):
		return "the host of the URI is not in its normal form"
	case hasPort && !plainPort(port):
		return "the port of the URI is not in its normal form"
	default:
		return ""
	}
}

// plainUser reports whether USER or USER:PASSWORD is in normal form.
func plainUser(userinfo string) bool {
	user, password, hasPassword := strings.Cut(userinfo, ":")
	return user != "" && hasPassword == (password != "") && consistsOf(user+password, inUserinfo)
}

// cutPort splits HOST:PORT. A colon inside brackets belongs to the host.
func cutPort(authority string) (host, port string, found bool) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.HasSuffix(authority, "]") {
		return authority, "", false
	}
	return authority[:i], authority[i+1:], true
}

func plainPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == port
}

// plainHost reports whether host is a name or an address in normal form. Names beyond ASCII are
// in Punycode.
func plainHost(host string) bool {
	if strings.HasPrefix(host, "[") {
		return plainAddress(host)
	}
	if host != strings.ToLower(host) || !consistsOf(host, "-._") {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || strings.HasPrefix(label, "xn--") && strings.HasSuffix(label, "-") {
			return false
		}
		last = label
	}
	if !numeric(last) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Is4() && addr.String() == host
}

// numeric reports whether a host with this last label is an IPv4 address.
func numeric(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	return strings.Trim(digits, "0123456789") == "" || hex && strings.Trim(digits, "0123456789abcdef") == ""
}

// plainAddress reports whether host is an IPv6 address in normal form.
func plainAddress(host string) bool {
	inner, ok := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	addr, err := netip.ParseAddr(inner)
	return ok && closed && err == nil && addr.Is6() && !addr.Is4In6() && addr.Zone() == "" && addr.String() == inner
}

// consistsOf reports whether text has only ASCII letters, digits and the given characters.
func consistsOf(text, others string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool {
		return !isLetter(c) && !isDigit(c) && (c >= utf8.RuneSelf || !strings.ContainsRune(others, c))
	})
}

// badEscape reports whether uri has a malformed escape.
func badEscape(uri string) bool {
	_, err := url.PathUnescape(uri)
	return err != nil
}

// hasNeedlessEscape reports whether uri has an escape of an unreserved character of RFC 3986: a
// letter, a digit, or one of -._~.
func hasNeedlessEscape(uri string) bool {
	for {
		var found bool
		if _, uri, found = strings.Cut(uri, "%"); !found {
			return false
		}
		c, err := strconv.ParseUint(uri[:min(2, len(uri))], 16, 8)
		if err != nil {
			continue
		}
		if r := rune(c); r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-._~", r)) {
			return true
		}
	}
}

// slashes replaces the spellings of a slash that servers may accept.
var slashes = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/", `\`, "/")

// hasDotSegment reports whether the path of uri has a segment . or .., which servers resolve.
func hasDotSegment(uri string) bool { return dotSegmentIn(pathOf(uri)) }

func dotSegmentIn(path string) bool {
	for segment := range strings.SplitSeq(slashes.Replace(path), "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// readings returns the other names that a server may read for a name in normal form.
func readings(kind Kind, name string) []string {
	var others []string
	add := func(other string) {
		if other != name && other != "" && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	if kind != Resource {
		if !plainASCII(name) {
			add(norm.NFKC.String(name))
		}
		return others
	}
	base, _, _ := strings.Cut(name, "#")
	add(base)
	if rest, isFile := strings.CutPrefix(base, "file://"); isFile {
		base, _, _ = strings.Cut(base, "?")
		add(base)
		if i := strings.IndexByte(rest, '/'); i > 0 {
			path, _, _ := strings.Cut(rest[i:], "?")
			add("file://" + path) // many servers ignore the host
			add("file://" + decoded(path))
		}
	}
	if strings.Contains(base, "%") {
		add(upperEscapes(base))
		add(decoded(base))
		add(decoded(decoded(base)))
	}
	for _, read := range slices.Concat(others, []string{name}) {
		add(withoutEnd(read))
	}
	return others
}

// withoutEnd returns a URI without the parts that many servers ignore: the fragment; except for
// web pages, the slash at the end; for files, the query.
func withoutEnd(uri string) string {
	uri, _, _ = strings.Cut(uri, "#")
	scheme, _, hasScheme := strings.Cut(uri, ":")
	switch {
	case scheme == "http", scheme == "https":
		return uri
	case scheme == "file":
		uri, _, _ = strings.Cut(uri, "?")
	case !hasScheme:
		scheme = ""
	}
	_, path, _ := splitAuthority(strings.TrimPrefix(uri[len(scheme):], ":"))
	if strings.Trim(path, "/") == "" {
		return uri
	}
	//mutate:swap `strings.TrimRight(uri, "/")` "uri" TestTrailingPartsAreAmbiguous a trailing slash evades the rule of a resource
	return strings.TrimRight(uri, "/")
}

// decoded returns text without escapes. Malformed escapes stay, as with lenient servers.
func decoded(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				plain = append(plain, byte(c))
				i += 2
				continue
			}
		}
		plain = append(plain, text[i])
	}
	return string(plain)
}

// upperEscapes returns uri with its escapes in upper case.
func upperEscapes(uri string) string {
	b := []byte(uri)
	for i := range b {
		if b[i] == '%' && i+2 < len(b) {
			copy(b[i:i+3], strings.ToUpper(string(b[i:i+3])))
		}
	}
	return string(b)
}
