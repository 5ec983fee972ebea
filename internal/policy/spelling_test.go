package policy_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// secrets denies files under /etc, holds secret documents, denies deletions, and forwards all
// else.
func secrets(t *testing.T) *policy.Snapshot {
	t.Helper()
	return compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "file:///etc/*", Action: policy.Deny},
			{Match: "docs://secret/*", Action: policy.Approve},
			{Match: "delete_*", Action: policy.Deny},
		},
		Default: policy.Rule{Action: policy.Forward},
	})
}

// URIs and names that servers may read differently are refused.
func TestAmbiguousNamesAreRefused(t *testing.T) {
	s := secrets(t)
	tests := map[string][]string{
		"resources/read": {
			"FILE:///etc/passwd", "file:/etc/passwd", "file:etc/passwd", "file://localhost/etc/passwd", "file:////etc/passwd",
			`file:\\\etc\passwd`, ` file:///etc/passwd`, "file:///e\ttc/passwd", "file:///etc\n/passwd", "fi\nle:///etc/passwd",
			"file:///x/.\t./etc/passwd", "file:///x/%2e%2e/etc/passwd", "file:///x/../etc/passwd", "file:///%65tc/passwd",
			"file:///etc%2Fpasswd", "file:///etc%252Fpasswd", "file://other/etc/passwd", "file:///\u200betc/passwd",
			"file:///C|/x", "file:///a b", "file:///données", "docs://secret%2Fplan", "docs://secret%2fplan",
			"https://EXAMPLE.com/", "https://example.com", "https://example.com:443/", "https://user@example.com/",
			"https://exämple.com/", "https://example.com./", "https://0x7f.1/", "https://127.1/", "https://[0:0::1]/",
			"https://example.com:0080/", "https://example.com/a//b", "https://xn--abc-/", "http://example.com\\@evil/",
			"foo://@host/x", "foo://user:@host/x", "foo://host:/x", "foo://host:007/x", "notes\\..\\x", "notes/../x", "a\u0000b",
			"file:///etc/passwd%", "file:///%zz", " notes", "notes\u200b",
			// Servers that decode before they parse read these differently.
			"file:///x/%252e%252e/etc/passwd", "file:///x/..%252Fetc/passwd", "file:///x/%25252e%25252e/etc/passwd", "file:///x/%255c..%255cetc",
			"file:///e%09tc/passwd", "file:///e%0Atc/passwd", "file:///e%2509tc/passwd", "file:///etc%00/passwd", "file:///x%E2%80%8B", "file:///cafe%CC%81",
			"file:///x/%252e%252e/%25zz", "x/%252e%252e/%zz", "/etc//passwd", "notes//today", "foo:/a//b", "file://other/e%09tc/passwd",
		},
		"tools/call":  {"delete_\u200bfile", "\u00a0delete_file", "delete_file\u0000", "\ufeffdelete_file", "e\u0301", "ｄelete_file", "delete\u00ad_file", "\u3164x"},
		"prompts/get": {"re\u0301sume", "x\u2060", "x\ufe0f"},
	}
	for method, names := range tests {
		for _, name := range names {
			if v := s.Judge(policy.Call{Method: method, Name: name, Principal: policy.Principal{Anonymous: true}}); !v.Ambiguous || v.Action != policy.Deny {
				t.Errorf("%s %q: %+v; want a refusal as ambiguous", method, name, v)
			}
		}
	}
}

// Rules about a file also apply to URIs whose end servers ignore, such as a query.
func TestTrailingPartsAreAmbiguous(t *testing.T) {
	s := compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "file:///data/secret.txt", Kind: policy.Resource, Action: policy.Deny},
			{Match: "*.key", Kind: policy.Resource, Action: policy.Approve},
			{Match: "https://example.com/secret", Kind: policy.Resource, Action: policy.Deny},
		},
		Default: policy.Rule{Action: policy.Forward},
	})
	for name, ambiguous := range map[string]bool{
		"file:///data/secret.txt/": true, "file:///data/secret.txt%2F": true, "file:///data/secret.txt%252F": true,
		"file:///data/secret.txt%23x": true, "file:///data/secret.txt%3Fx": true, "file:///data/secret.txt/?x": true, "file:///data/secret.txt/#x": true,
		"file:///a.key/": true, "notes/a.key/": true, "vault://a/b.key/": true, "vault://a/b.key%23": true, "file://other/a.key/": true,
		"file:///data/": false, "file:///": false, "notes/": false, "vault://a/": false, "/": false, "file:///data/other.txt/": false,
		"https://example.com/secret/": false, // another page
	} {
		v := s.Judge(policy.Call{Method: "resources/read", Name: name, Principal: policy.Principal{Anonymous: true}})
		if v.Ambiguous != ambiguous {
			t.Errorf("%q: %+v", name, v)
		}
	}
}

// Names that all servers read in the same way are not ambiguous.
func TestOrdinaryNamesAreNotAmbiguous(t *testing.T) {
	s := secrets(t)
	tests := map[string][]string{
		"resources/read": {
			"file:///home/x", "file:///C:/x", "file://server/share", "https://example.com/", "https://example.com:8443/a?b=c#d", "memory:x",
			"https://web.archive.org/web/2020/http://example.com/", "https://192.0.2.1/", "https://[2001:db8::1]/", "https://xn--exmple-cua.com/",
			"postgres://user@host:5432/db/table/schema", "urn:isbn:0451450523", "notes/today", "greeting", "repo://owner%2Fname/x", "foo:///a", "foo://Host",
			"file:///a%20b", "file:///donn%C3%A9es", "file:///100%25", "file:///a%2520b", "foo:a//b", "mem:/a/b", "données",
		},
		"tools/call":  {"read_file", "getUser", "büro.lesen", "read file", "日本"},
		"prompts/get": {"résumé"},
	}
	for method, names := range tests {
		for _, name := range names {
			if v := s.Judge(policy.Call{Method: method, Name: name, Principal: policy.Principal{Anonymous: true}}); v.Action != policy.Forward {
				t.Errorf("%s %q: %+v; want it forwarded", method, name, v)
			}
		}
	}
}

// If policy only observes, an ambiguous name is forwarded, and the verdict has the refusal.
func TestAmbiguousNameIsForwardedWhenObserving(t *testing.T) {
	s := compile(t, policy.Config{Default: policy.Rule{Action: policy.Forward}, Observe: true})
	v := s.Judge(policy.Call{Method: "resources/read", Name: "FILE:///x", Principal: policy.Principal{Anonymous: true}})
	if v.Action != policy.Forward || v.Would == nil || !v.Would.Ambiguous {
		t.Errorf("%+v; want it forwarded, with the refusal in Would", v)
	}
}

// A whatwg is the implementation of the WHATWG URL standard in Node.js.
type whatwg struct {
	in  io.Writer
	out *bufio.Reader
}

const oracle = `
require('readline').createInterface({input: process.stdin}).on('line', line => {
  let href = null
  try { href = new URL(JSON.parse(line)).href } catch {}
  console.log(JSON.stringify(href))
})`

func startNode(t *testing.T) *whatwg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "-e", oracle)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &whatwg{in: in, out: bufio.NewReader(out)}
}

// href returns the normal form of uri, and whether uri is a valid URL.
func (w *whatwg) href(t interface{ Fatal(...any) }, uri string) (string, bool) {
	text, err := json.Marshal(uri)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.in.Write(append(text, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var href *string
	if err := json.Unmarshal(line, &href); err != nil {
		t.Fatal(err)
	}
	if href == nil {
		return "", false
	}
	return *href, true
}

// pieces are parts of URIs, including those that parsers often handle wrongly.
var pieces = []string{
	"file:", "http:", "https:", "ws:", "ftp:", "foo:", "urn:", "FILE:", "data:", "//", "///", "/", "\\", "etc", "a", "B", "..", ".", "%2e", "%2E", "%2F",
	"%20", "%zz", "%", " ", "\t", "\n", "\r", "\x00", "\x1f", "\x7f", "é", "\u200b", "\u00ad", "ß", "İ", "。", "localhost", "example.com", "xn--exmple-cua.com", "xn--a",
	"xn--abc-", "XN--", "127.1", "0x7f", "127.0.0.1", "1.2.3.4.", "256", "08", "[::1]", "[::ffff:1.2.3.4]", "[1::]", "[", "]", ":", ":80", ":443", ":21", ":08", ":0", ":65536",
	"@", "user", "user:pw", "user:", "?", "#", "'", "\"", "<", ">", "`", "{", "}", "|", "^", "~", "!", "$", "&", "(", ")", "*", "+", ",", ";", "=", "-", "_", "C|", "C:", "c:",
}

// Every URI that is forwarded is its own normal form, or is not a URL.
func TestForwardedURIsAreNormal(t *testing.T) {
	s := compile(t, policy.Config{Default: policy.Rule{Action: policy.Forward}})
	node := startNode(t)
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SampledFrom([]string{"", "file:///", "https://", "https://example.com/", "foo://", "foo://host/", "foo:"}).Draw(t, "start")
		uri := start + strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(t, "pieces"), "")
		v := s.Judge(policy.Call{Method: "resources/read", Name: uri, Principal: policy.Principal{Anonymous: true}})
		if v.Action != policy.Forward {
			return
		}
		if href, isURL := node.href(t, uri); isURL && href != uri {
			t.Fatalf("%q is forwarded, and is read as %q", uri, href)
		}
		if strings.TrimFunc(uri, func(r rune) bool { return r <= ' ' }) != uri || strings.ContainsAny(uri, "\t\r\n") {
			t.Fatalf("%q is forwarded, with characters that parsers strip", uri)
		}
	})
}
