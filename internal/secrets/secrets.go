// Package secrets finds passwords, keys and tokens in texts: a call that has one by accident
// should not reach its server, a log or a channel unnoticed. It is no protection from somebody
// who wants to hide a secret, which takes one encoding.
package secrets

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// What a [Finder] can look for, besides regular expressions.
const (
	Known  = "known"  // the published formats of keys and tokens
	Likely = "likely" // random texts, mostly by the name of their member
)

// A Finder looks for secrets.
type Finder struct {
	known, likely bool
	own           []*regexp.Regexp
}

// Standard returns a finder of everything that needs no regular expression.
func Standard() *Finder { return &Finder{known: true, likely: true} }

// New returns a finder of [Known], [Likely], or the matches of regular expressions.
func New(wanted []string) (*Finder, error) {
	var f Finder
	for _, want := range wanted {
		switch want {
		case Known:
			f.known = true
		case Likely:
			f.likely = true
		default:
			own, err := regexp.Compile(want)
			if err != nil {
				return nil, fmt.Errorf("%q is not known, likely or a regular expression: %w", want, err)
			}
			//mutate:false TestNewRefuses a pattern that matches everything holds every call
			if own.MatchString("") {
				return nil, fmt.Errorf("%q matches the empty text, and so everything", want)
			}
			f.own = append(f.own, own)
		}
	}
	return &f, nil
}

// InText reports whether the text of a member with that name has a secret. The name may be
// empty.
func (f *Finder) InText(name, text string) bool {
	for range f.all(name, text) {
		return true
	}
	return false
}

// Hide replaces the secrets in the text of a member, and returns them.
func (f *Finder) Hide(name, text string) (shown string, hidden []string) {
	found := slices.SortedFunc(f.all(name, text), func(a, b span) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	var b strings.Builder
	done := 0
	for _, s := range found {
		if s.end <= done {
			continue
		}
		hidden = append(hidden, text[s.start:s.end])
		if s.start >= done {
			b.WriteString(text[done:s.start] + "[redacted]")
		}
		done = s.end
	}
	b.WriteString(text[done:])
	return b.String(), hidden
}

// A span is a part of a text.
type span struct{ start, end int }

// all returns where the secrets are in the text of a member. They may overlap.
func (f *Finder) all(name, text string) iter.Seq[span] {
	return func(yield func(span) bool) {
		if f.known && mayHaveKnown(text) {
			for _, at := range knownFormat.FindAllStringSubmatchIndex(text, -1) {
				if !yield(span{at[2], at[3]}) {
					return
				}
			}
		}
		if f.likely {
			for s := range likely(name, text) {
				if !yield(s) {
					return
				}
			}
		}
		for _, own := range f.own {
			for _, at := range own.FindAllStringIndex(text, -1) {
				if !yield(span{at[0], at[1]}) {
					return
				}
			}
		}
	}
}

// InJSON reports whether a text or the name of a member in a value has a secret.
func (f *Finder) InJSON(value jsontext.Value) bool {
	if len(value) == 0 {
		return false
	}
	d := jsontext.NewDecoder(strings.NewReader(string(value)))
	var names []string // of the members around the next token, by depth
	for {
		token, err := d.ReadToken()
		if err != nil {
			return d.StackDepth() > 0 && f.InText("", string(value)) // broken JSON is searched as a text
		}
		depth := d.StackDepth()
		switch kind, n := d.StackIndex(depth); {
		case token.Kind() == '{' || token.Kind() == '[':
			names = append(names[:min(depth-1, len(names))], above(names, depth-1))
		case token.Kind() != '"':
		case kind == '{' && n%2 == 1: // a name
			names[depth-1] = token.String()
			if f.InText("", token.String()) {
				return true
			}
		case f.InText(above(names, depth), token.String()):
			return true
		}
	}
}

// above returns the name of the member with the value at that depth.
func above(names []string, depth int) string {
	if depth < 1 || depth > len(names) {
		return ""
	}
	return names[depth-1]
}

// A format is the published form of a key or token: a regular expression, and texts of which one
// is in every match.
type format struct {
	parts   []string
	pattern string
}

var formats = []format{
	{[]string{"AKIA", "ASIA"}, `A[KS]IA[A-Z2-7]{16}\b`},                                                       // AWS
	{[]string{"gho_", "ghp_", "ghr_", "ghs_", "ghu_"}, `gh[oprsu]_[A-Za-z0-9]{36}`},                           // GitHub
	{[]string{"github_pat_"}, `github_pat_[A-Za-z0-9_]{60,}`},                                                 // GitHub
	{[]string{"glpat-", "gldt-", "glrt-", "glptt-"}, `gl(?:pat|dt|rt|ptt)-[\w-]{20,}`},                        // GitLab
	{[]string{"xox", "xapp-"}, `(?:xox[a-z]|xapp)-[A-Za-z0-9-]{16,}`},                                         // Slack
	{[]string{"hooks.slack.com"}, `hooks\.slack\.com/services/\w+/\w+/\w{16,}`},                               // Slack
	{[]string{"_live_", "_test_"}, `[rs]k_(?:live|test)_[A-Za-z0-9]{16,}`},                                    // Stripe
	{[]string{"whsec_"}, `whsec_[A-Za-z0-9+/]{24,}`},                                                          // Stripe
	{[]string{"AIza"}, `AIza[\w-]{35}`},                                                                       // Google
	{[]string{"GOCSPX-"}, `GOCSPX-[\w-]{28}`},                                                                 // Google
	{[]string{"ya29."}, `ya29\.[\w-]{20,}`},                                                                   // Google
	{[]string{"sk-"}, `sk-(?:proj|svcacct|admin|ant|or)-[\w-]{24,}`},                                          // OpenAI, Anthropic, OpenRouter
	{[]string{"sk-"}, `sk-[A-Za-z0-9]{40,}`},                                                                  // OpenAI, DeepSeek
	{[]string{"hf_"}, `hf_[A-Za-z0-9]{34}`},                                                                   // Hugging Face
	{[]string{"npm_"}, `npm_[A-Za-z0-9]{36}`},                                                                 // npm
	{[]string{"pypi-"}, `pypi-AgEI[\w-]{50,}`},                                                                // PyPI
	{[]string{"dckr_"}, `dckr_[a-z]+_[\w-]{27,}`},                                                             // Docker
	{[]string{"SG."}, `SG\.[\w-]{22}\.[\w-]{43}`},                                                             // SendGrid
	{[]string{"SK"}, `SK[0-9a-f]{32}\b`},                                                                      // Twilio
	{[]string{"key-"}, `key-[0-9a-f]{32}\b`},                                                                  // Mailgun
	{[]string{":AA"}, `[0-9]{8,10}:AA[\w-]{33}`},                                                              // Telegram
	{[]string{"_v1_"}, `do[opr]_v1_[0-9a-f]{64}`},                                                             // DigitalOcean
	{[]string{"shp"}, `shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}`},                                                   // Shopify
	{[]string{"dapi"}, `dapi[0-9a-f]{32}`},                                                                    // Databricks
	{[]string{"hvs.", "hvb."}, `hv[sb]\.[\w-]{24,}`},                                                          // Vault
	{[]string{".atlasv1."}, `[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}`},                                           // Terraform
	{[]string{"pul-"}, `pul-[0-9a-f]{40}`},                                                                    // Pulumi
	{[]string{"glsa_"}, `glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}`},                                                   // Grafana
	{[]string{"lin_api_"}, `lin_api_[A-Za-z0-9]{40}`},                                                         // Linear
	{[]string{"ntn_"}, `ntn_[A-Za-z0-9]{40,}`},                                                                // Notion
	{[]string{"AGE-SECRET-KEY-"}, `AGE-SECRET-KEY-1[0-9A-Z]{58}`},                                             // age
	{[]string{"AccountKey="}, `AccountKey=[A-Za-z0-9+/]{80,}`},                                                // Azure
	{[]string{"X-Amz-Signature="}, `X-Amz-Signature=[0-9a-f]{64}`},                                            // signed URLs of S3
	{[]string{"eyJ"}, `eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}`},                                               // JWT
	{[]string{"PRIVATE KEY"}, `-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[^-]+(?:-----END [A-Z ]*-----)?`}, // PEM, OpenPGP
	{[]string{"://"}, `[a-z][a-z0-9+.-]*://[^\s/:@?#]*:[^\s/@?#$<{*]{4,}@[\w.-]+`},                            // a password in a URL
}

var knownFormat = regexp.MustCompile(`(?:^|[^0-9A-Za-z_])(` + strings.Join(patterns(), "|") + `)`)

func patterns() []string {
	var all []string
	for _, f := range formats {
		all = append(all, f.pattern)
	}
	return all
}

// mayHaveKnown reports whether text has a part of a published format. Most texts have none, and
// the regular expression is slow.
func mayHaveKnown(text string) bool {
	return slices.ContainsFunc(formats, func(f format) bool {
		return slices.ContainsFunc(f.parts, func(part string) bool { return strings.Contains(text, part) })
	})
}

// publicBlocks returns where certificates and public keys are, whose lines look random.
func publicBlocks(text string) [][]int {
	if !strings.Contains(text, "-----BEGIN ") {
		return nil
	}
	return publicBlock.FindAllStringIndex(text, -1)
}

var publicBlock = regexp.MustCompile(`(?s)-----BEGIN (?:CERTIFICATE|PGP PUBLIC KEY BLOCK|[A-Z ]*PUBLIC KEY)-----.*?-----END `)

// The limits of a text that looks random. A longer one is data.
const (
	minNamed   = 12 // with a name that tells of a secret
	minUnnamed = 32
	maxRandom  = 256
)

// likely returns where the words are in the text of a member that look random and so may be
// secrets, or the whole text of a password.
func likely(name, text string) iter.Seq[span] {
	return func(yield func(span) bool) {
		named := tells(name)
		//mutate:false TestRates a short password is no secret
		if named == password && isPassword(text) {
			yield(span{0, len(text)})
			return
		}
		public := publicBlocks(text)
		for before, s := range words(text) {
			for len(public) > 0 && public[0][1] <= s.start {
				public = public[1:]
			}
			inPublic := len(public) > 0 && public[0][0] <= s.start
			if !inPublic && looksSecret(named == secret || tells(before) != nothing, before, text[s.start:s.end]) && !yield(s) {
				return
			}
		}
	}
}

// isPassword reports whether the value of a password is one.
func isPassword(text string) bool {
	return len(text) >= 4 && !isPlaceholder(text) && !strings.ContainsAny(text, " \n")
}

// looksSecret reports whether a word looks random enough for a secret. With a name that tells of a
// secret, less is enough.
func looksSecret(named bool, before, word string) bool {
	switch {
	case len(word) < minNamed || len(word) > maxRandom || isPlaceholder(word):
		return false
	case named:
		return random(word, 3, 0.15)
	default:
		return len(word) >= minUnnamed && !isDigest(before, word) && !strings.ContainsAny(word, ".!@#%^&*$~") && random(word, 4.2, 0.4)
	}
}

// words returns the words of a text that may be secrets, each with the name before it, as in
// NAME=word or "NAME": "word".
func words(text string) iter.Seq2[string, span] {
	return func(yield func(name string, word span) bool) {
		last, assigned := "", false // the word before, and whether an equals sign or colon follows it
		for i := 0; i < len(text); {
			if !inWord(text[i]) {
				switch text[i] {
				case ':', '=':
					assigned = true
				case ' ', '"', '\'', '\\':
				default:
					last, assigned = "", false
				}
				i++
				continue
			}
			word := span{start: i}
			for i < len(text) && inWord(text[i]) {
				i++
			}
			word.end = i
			name := ""
			if assigned {
				name = last
			}
			if !yield(name, word) {
				return
			}
			last, assigned = text[word.start:word.end], false
		}
	}
}

func inWord(c byte) bool { return kindOf(c) != other || strings.IndexByte("+/_~.!@#%^&*$-", c) >= 0 }

// isDigest reports whether a word is a digest with its algorithm, as in go.sum and in the lock
// files of npm.
func isDigest(before, word string) bool {
	return before == "h1" || strings.HasPrefix(word, "sha") && strings.Contains(word[:min(len(word), 8)], "-")
}

// random reports whether a word looks random: it has digits and letters, at least that many bits
// of entropy for each character, and changes at least that often between kinds of characters.
func random(word string, bits, changes float64) bool {
	var counts [256]int
	var kinds [4]int
	last, changed := -1, 0
	for i := range len(word) {
		counts[word[i]]++
		kind := kindOf(word[i])
		kinds[kind]++
		if last >= 0 && kind != last {
			changed++
		}
		last = kind
	}
	if kinds[digit] == 0 || kinds[lower]+kinds[upper] == 0 || bits > 4 && (kinds[lower] == 0 || kinds[upper] == 0) {
		return false
	}
	entropy := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(word))
			entropy -= p * math.Log2(p)
		}
	}
	return entropy >= bits && float64(changed) >= changes*float64(len(word)-1)
}

// The kinds of characters.
const (
	digit = iota
	lower
	upper
	other
)

func kindOf(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return digit
	case 'a' <= c && c <= 'z':
		return lower
	case 'A' <= c && c <= 'Z':
		return upper
	default:
		return other
	}
}

// isPlaceholder reports whether a text stands for a secret that is elsewhere.
func isPlaceholder(text string) bool {
	folded := strings.ToLower(text)
	return strings.HasPrefix(text, "$") || strings.HasPrefix(text, "<") || strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "%") ||
		strings.Trim(text, "*") == "" || strings.Contains(folded, "xxxx") || strings.Contains(folded, "example") ||
		strings.Contains(folded, "placeholder") || strings.Contains(folded, "redacted") || strings.HasPrefix(folded, "your")
}

// A hint is what a name tells about its value.
type hint int

const (
	nothing hint = iota
	secret       // the value is a secret if it looks random
	password
)

// tells returns what the name of a member or variable tells about its value.
func tells(name string) hint {
	if name == "" || len(name) > 64 {
		return nothing
	}
	folded := strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
	has := func(part string) bool { return strings.Contains(folded, part) }
	ends := func(part string) bool { return strings.HasSuffix(folded, part) }
	switch {
	case slices.ContainsFunc([]string{"password", "passwd", "passphrase", "pwd"}, ends):
		return password
	case slices.ContainsFunc([]string{"page", "next", "cursor", "continu", "max", "count", "sync", "public", "idempot"}, has),
		slices.ContainsFunc([]string{"id", "name", "type", "url", "uri", "path", "file", "ref", "arn"}, ends):
		return nothing
	case slices.ContainsFunc([]string{"secret", "token", "apikey", "accesskey", "privatekey", "secretkey", "accountkey", "authkey", "credential", "authorization", "password", "bearer"}, has):
		return secret
	default:
		return nothing
	}
}
