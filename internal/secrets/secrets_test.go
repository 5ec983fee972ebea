package secrets_test

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/thoughtgate/thoughtgate-go/internal/secrets"
)

const (
	base62    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	base64URL = base62 + "-_"
	hexDigits = "0123456789abcdef"
)

// maker makes random texts. They are made while the test runs, because services that look for
// leaked tokens would find them in the repository.
type maker struct{ *mathrand.Rand }

func newMaker(t *testing.T) maker {
	t.Helper()
	var seed [32]byte
	rand.Read(seed[:])
	t.Logf("seed %x", seed)
	return maker{mathrand.New(mathrand.NewChaCha8(seed))}
}

func (m maker) of(letters string, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[m.IntN(len(letters))]
	}
	return string(text)
}

// known makes secrets of published formats.
var known = map[string]func(maker) string{
	"AWS":         func(m maker) string { return "AKIA" + m.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16) },
	"GitHub":      func(m maker) string { return "ghp_" + m.of(base62, 36) },
	"GitHub fine": func(m maker) string { return "github_pat_" + m.of(base62, 22) + "_" + m.of(base62, 59) },
	"GitLab":      func(m maker) string { return "glpat-" + m.of(base64URL, 20) },
	"Slack": func(m maker) string {
		return "xoxb-" + m.of("0123456789", 12) + "-" + m.of("0123456789", 12) + "-" + m.of(base62, 24)
	},
	"Slack hook": func(m maker) string {
		return "https://hooks.slack.com/services/T" + m.of(base62[:36], 8) + "/B" + m.of(base62[:36], 8) + "/" + m.of(base62, 24)
	},
	"Stripe":       func(m maker) string { return "sk_live_" + m.of(base62, 24) },
	"Google":       func(m maker) string { return "AIza" + m.of(base64URL, 35) },
	"OpenAI":       func(m maker) string { return "sk-proj-" + m.of(base64URL, 74) },
	"Anthropic":    func(m maker) string { return "sk-ant-api03-" + m.of(base64URL, 93) + "AA" },
	"Hugging Face": func(m maker) string { return "hf_" + m.of(base62[10:], 34) },
	"npm":          func(m maker) string { return "npm_" + m.of(base62, 36) },
	"PyPI":         func(m maker) string { return "pypi-AgEIcHlwaS5vcmc" + m.of(base64URL, 60) },
	"SendGrid":     func(m maker) string { return "SG." + m.of(base64URL, 22) + "." + m.of(base64URL, 43) },
	"Twilio":       func(m maker) string { return "SK" + m.of(hexDigits, 32) },
	"Telegram":     func(m maker) string { return m.of("123456789", 9) + ":AA" + m.of(base64URL, 33) },
	"DigitalOcean": func(m maker) string { return "dop_v1_" + m.of(hexDigits, 64) },
	"Vault":        func(m maker) string { return "hvs." + m.of(base64URL, 24) },
	"Grafana":      func(m maker) string { return "glsa_" + m.of(base62, 32) + "_" + m.of(hexDigits, 8) },
	"Azure": func(m maker) string {
		return "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=" + m.of(base62, 86) + "=="
	},
	"JWT": func(m maker) string {
		part := func(n int) string {
			return base64.RawURLEncoding.EncodeToString([]byte(`{"` + m.of(base62[10:], n) + `":1}`))
		}
		return part(12) + "." + part(40) + "." + m.of(base64URL, 43)
	},
	"private key": func(m maker) string { return "-----BEGIN OPENSSH PRIVATE KEY-----\n" + m.of(base62, 64) + "\n" },
	"database":    func(m maker) string { return "postgres://app:" + m.of(base62, 16) + "@db.internal:5432/app" },
}

// likely makes arguments with secrets that have no format of their own.
var likely = map[string]func(maker) string{
	"password":  func(m maker) string { return fmt.Sprintf(`{"password":%q}`, m.of(base62[10:], 8)) },
	"API key":   func(m maker) string { return fmt.Sprintf(`{"headers":{"X-Api-Key":%q}}`, m.of(base62, 32)) },
	"hex token": func(m maker) string { return fmt.Sprintf(`{"auth_token":%q}`, m.of(hexDigits, 40)) },
	"AWS secret": func(m maker) string {
		return fmt.Sprintf(`{"env":{"AWS_SECRET_ACCESS_KEY":%q}}`, m.of(base62+"+/", 40))
	},
	"in a command": func(m maker) string { return fmt.Sprintf(`{"command":"API_TOKEN=%s ./deploy.sh"}`, m.of(base62, 32)) },
	"in a file": func(m maker) string {
		return fmt.Sprintf(`{"content":"[db]\nclient_secret = '%s'\n"}`, m.of(base64URL, 36))
	},
	"a header":        func(m maker) string { return fmt.Sprintf(`{"curl":"-H 'X-Auth-Token: %s'"}`, m.of(base62, 40)) },
	"without a name":  func(m maker) string { return fmt.Sprintf(`{"text":"use %s for it"}`, m.of(base62, 40)) },
	"list of secrets": func(m maker) string { return fmt.Sprintf(`{"tokens":["none",%q]}`, m.of(base62, 24)) },
}

// harmless makes arguments that look similar.
var harmless = map[string]func(maker) string{
	"UUID":   func(maker) string { return fmt.Sprintf(`{"id":%q}`, uuid.NewString()) },
	"commit": func(m maker) string { return fmt.Sprintf(`{"sha":%q}`, m.of(hexDigits, 40)) },
	"digest": func(m maker) string {
		s := sha256.Sum256([]byte(m.of(base62, 9)))
		return fmt.Sprintf(`{"digest":"sha256:%s"}`, hex.EncodeToString(s[:]))
	},
	"integrity": func(m maker) string {
		s := sha256.Sum256([]byte(m.of(base62, 9)))
		return fmt.Sprintf(`{"integrity":"sha256-%s"}`, base64.StdEncoding.EncodeToString(s[:]))
	},
	"page": func(m maker) string { return fmt.Sprintf(`{"page_token":%q}`, m.of(base62, 24)) },
	"placeholder": func(maker) string {
		return `{"password":"${DB_PASSWORD}","api_key":"<your key>","token":"xxxxxxxxxxxxxxxx"}`
	},
	"max_tokens": func(maker) string { return `{"max_tokens":4096,"token_type":"bearer"}` },
	"path": func(m maker) string {
		return fmt.Sprintf(`{"path":"/home/ann/src/project-%s/internal/mcphttp/TestToolDrift2.go"}`, m.of(hexDigits, 6))
	},
	"URL": func(m maker) string {
		return fmt.Sprintf(`{"url":"https://example.com/watch?v=%s&t=120s"}`, m.of(base62, 11))
	},
	"pod": func(m maker) string {
		return fmt.Sprintf(`{"pod":"checkout-service-7d9f8b6c5d-%s"}`, m.of(base62[36:], 5))
	},
	"image": func(m maker) string {
		return fmt.Sprintf(`{"data":%q}`, base64.StdEncoding.EncodeToString([]byte(m.of(base62, 900))))
	},
	"certificate": func(m maker) string {
		return fmt.Sprintf(`{"cert":"-----BEGIN CERTIFICATE-----\n%s\n%s\n-----END CERTIFICATE-----"}`, m.of(base62, 64), m.of(base62, 64))
	},
	"identifier": func(maker) string { return `{"symbol":"TestStrictestListingCountsForChangedTools2026AndLater"}` },
	"text": func(maker) string {
		return `{"text":"The token expires after an hour; reset your password at the desk."}`
	},
	"code": func(maker) string {
		return `{"code":"password := os.Getenv(\"DB_PASSWORD\")\ntoken, err := parseToken(header)"}`
	},
	"public key":      func(m maker) string { return fmt.Sprintf(`{"publicKey":%q}`, m.of(base62, 44)[:31]) },
	"idempotency key": func(m maker) string { return fmt.Sprintf(`{"idempotencyKey":%q}`, m.of(base62, 22)) },
}

// TestRates measures how many made-up secrets are found, and how many harmless texts are taken
// for secrets. docs/policy.md has the rates.
func TestRates(t *testing.T) {
	m := newMaker(t)
	all := secrets.Standard()
	inText := func(secret func(maker) string) func(maker) string {
		return func(m maker) string {
			text, _ := jsontext.AppendQuote(nil, "please use "+secret(m)+" from now on")
			return `{"arguments":{"note":` + string(text) + `}}`
		}
	}
	const tries = 200
	rate := func(text func(maker) string) float64 {
		found := 0
		for range tries {
			if all.InJSON(jsontext.Value(text(m))) {
				found++
			}
		}
		return float64(found) / tries
	}
	for name, make := range known {
		if r := rate(inText(make)); r < 1 {
			t.Errorf("%s: %.1f%% of the known secrets are found", name, 100*r)
		}
	}
	for name, make := range likely {
		if r := rate(make); r < 0.95 {
			t.Errorf("%s: %.1f%% of the likely secrets are found", name, 100*r)
		}
	}
	for name, make := range harmless {
		if r := rate(make); r > 0 {
			t.Errorf("%s: %.1f%% of the harmless texts are taken for secrets", name, 100*r)
		}
	}
}

// TestOrdinaryText takes the sources and documents of this repository, line by line, as
// arguments. They have no secrets, but digests, certificates of tests, ids and code.
func TestOrdinaryText(t *testing.T) {
	all := secrets.Standard()
	lines, found := 0, 0
	for _, pattern := range []string{"../../go.sum", "../../*.md", "../../docs/*.md", "../*/*.go", "../../task/*.go", "../../task/*/*.go", "../../cmd/*/*.go", "../../docs/hosts.csv"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, name := range files {
			file, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			scan := bufio.NewScanner(file)
			scan.Buffer(nil, 1<<20)
			for scan.Scan() {
				lines++
				if all.InText("content", scan.Text()) {
					if found++; found < 60 {
						t.Logf("%s: %.160s", name, scan.Text())
					}
				}
			}
		}
	}
	t.Logf("%d of %d lines are taken for secrets", found, lines)
	if found*1000 > lines { // 0.1%
		t.Errorf("%d of %d ordinary lines are taken for secrets", found, lines)
	}
}

func TestInJSON(t *testing.T) {
	secret := `"ghp_` + newMaker(t).of(base62, 36) + `"`
	own, err := secrets.New([]string{`ACME-[0-9]{6}`, secrets.Known})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		``:                             false,
		`{}`:                           false,
		`{"a":[{"b":` + secret + `}]}`: true,
		`{"a":1,` + secret + `:2}`:     true,
		`[[[]],` + secret + `]`:        true,
		`{"a":` + secret:               true, // broken
		`{"a":"ACME-123456"}`:          true,
		`{"a":"ACME-12345"}`:           false,
		`{"password":"correct horse"}`: false, // known does not look at names
		`"AKIA\u0041BCDEFGHIJKLMNOP"`:  true,
	} {
		if got := own.InJSON(jsontext.Value(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, wanted := range []string{"(", "", ".*", "a?"} {
		if _, err := secrets.New([]string{secrets.Known, wanted}); err == nil {
			t.Errorf("%q is accepted", wanted)
		}
	}
}

func FuzzInJSON(f *testing.F) {
	f.Add(`{"a":{"token":["x",{"b":"y"}]},"c":"d"}`)
	f.Add(`{"a":`)
	all := secrets.Standard()
	f.Fuzz(func(_ *testing.T, text string) { all.InJSON(jsontext.Value(text)) })
}

func BenchmarkInJSON(b *testing.B) {
	m := maker{mathrand.New(mathrand.NewPCG(1, 2))}
	for name, text := range map[string]string{
		"small":   `{"path":"/tmp/notes.txt","content":"some words about the plan for today","mode":420}`,
		"large":   `{"content":"` + strings.Repeat("some words about the plan for today. ", 28<<10) + `"}`,
		"hostile": `{"content":"` + strings.Repeat("AKIA://a:b token="+m.of(base62, 11)+" ", 20<<10) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			all := secrets.Standard()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				all.InJSON(jsontext.Value(text))
			}
		})
	}
}
