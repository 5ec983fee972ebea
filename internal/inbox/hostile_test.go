package inbox_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// tags matches the tags of a page.
var tags = regexp.MustCompile(`<[^>]*>`)

// read returns the text of a page.
func read(page string) string { return html.UnescapeString(tags.ReplaceAllString(page, "")) }

// TestForeignTextStaysText checks that markup from agents and upstreams is shown as text.
func TestForeignTextStaysText(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	evil := []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`, `' onfocus='alert(1)`,
		`javascript:alert(1)`, `</textarea></title><script>`, `{{7*7}}`, `&lt;script&gt;`, `]]>--><script>`,
	}
	for _, text := range evil {
		quoted := fmt.Sprintf("%q", text)
		id := o.hold(t, held{tool: text, args: `{"x":` + quoted + `,` + quoted + `:1}`, by: text, says: text})
		for _, path := range []string{"/", "/approvals/" + string(id), "/approvals/" + string(id) + "?find=alert"} {
			page := alice.get(path)
			if !strings.Contains(strings.ReplaceAll(read(page), "\n", ""), text) {
				t.Errorf("the page %s does not show %s", path, text)
			}
			for _, tag := range tags.FindAllString(page, -1) {
				if regexp.MustCompile(`(?i)^<(script>|img|svg on|textarea>)| onfocus| onload| onerror`).MatchString(tag) && !strings.Contains(tag, "&#34;") && !strings.Contains(tag, "&#39;") {
					t.Errorf("%s has a tag from the text %s: %s", path, text, tag)
				}
			}
		}
		alice.decide(id, "reject", text)
		mustLack(t, alice.get("/history"), "<script>", "<img", "onload=alert(1)>")
	}
}

// TestHiddenCharactersSpelledOut checks that invisible characters are shown as their code
// points, and that confusable characters are marked.
func TestHiddenCharactersSpelledOut(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{
		tool: "d\u0435lete_file\u200b", by: "an\u202en",
		args: `{"p\u2066ath":"/tmp/\u202egpj.exe","zero":"a\u200b\u200db","tag":"\udb40\udc41","tab":"a\tb\nc"}`,
	})
	for _, path := range []string{"/", "/approvals/" + string(id)} {
		page := alice.get(path)
		mustHave(t, page,
			`>U+202E<span class="unseen"> (overrides the direction of what follows) </span></span>gpj.exe`,
			`p<span class="code-point" title="changes the direction of text">U+2066`,
			`d<span class="odd" title="U+0435 Cyrillic">е</span>lete_file<span class="code-point" title="has no width">U+200B`,
			"Not plain Latin letters: е is U+0435 Cyrillic",
		)
		for _, r := range "\u202e\u200b\u200d\u2066\U000E0041" {
			if strings.ContainsRune(page, r) {
				t.Errorf("%s has %U unescaped", path, r)
			}
		}
	}
	mustHave(t, alice.get("/approvals/"+string(id)), "This name may not be what it looks like", "U+E0041", `>U+200B<`, `>U+200D<`)
	mustHave(t, read(alice.get("/approvals/"+string(id))), "a\tb\nc")
	mustHave(t, alice.get("/approvals/"+string(id)+"/arguments"), `\u202egpj.exe`, `\u200b\u200d`, `\udb40\udc41`)
}

// TestBlankCharactersSpelledOut checks that blank characters are shown as their code points.
// Otherwise several of them could separate a part of a value from the rest of it.
func TestBlankCharactersSpelledOut(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	blanks := "\u2800\u3164\u115f\u1160\uffa0\u17b4\u180b\ufe00\u3000\u2003\u303f\ufffc\U0001d159\U00016fe4\U000e0100"
	id := o.hold(t, held{
		tool: "delete" + blanks, by: "ops" + blanks,
		args: `{"path` + blanks + `":"/data` + blanks + blanks + `force: false"}`,
	})
	for _, path := range []string{"/", "/approvals/" + string(id), "/approvals/" + string(id) + "?view=all", "/approvals/" + string(id) + "/arguments"} {
		page := alice.get(path)
		for _, r := range blanks {
			if strings.ContainsRune(page, r) {
				t.Errorf("%s has %U unescaped", path, r)
			}
		}
	}
	page := alice.get("/approvals/" + string(id))
	mustHave(t, page, `delete<span class="code-point" title="cannot be seen">U+2800`, `path<span class="code-point" title="cannot be seen">U+2800`, `/data<span class="code-point" title="cannot be seen">U+2800`)
}

// TestConfusableValuesMarked checks that letters of another script inside a word are marked
// wherever the value is shown, and that a warning above the arguments names them. Words in
// one script are not marked.
func TestConfusableValuesMarked(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	const marked = `p<span class="odd" title="U+0430 Cyrillic">` + "\u0430" + `</span>ypal.com`
	long := strings.Repeat(`all is well\n`, 300)
	tests := map[string]string{
		"short":       `{"url":"https://pаypal.com"}`,
		"in an array": `{"urls":[["https://pаypal.com"]]}`,
		"first lines": `{"text":"https://pаypal.com\n` + long + `"}`,
		"last lines":  `{"text":"` + long + `https://pаypal.com"}`,
		"folded":      `{"text":"` + long + `https://pаypal.com\n` + long + `"}`,
	}
	for name, args := range tests {
		path := "/approvals/" + string(o.hold(t, held{args: args, by: name}))
		page := alice.get(path)
		mustHave(t, page, marked, "Some characters look like others", "\u0430 is U+0430 Cyrillic")
		mustHave(t, alice.get(path+"?view=all"), `<span class="odd" title="U+0430 Cyrillic">`)
	}
	mustHave(t, alice.get("/"), marked)
	url := o.hold(t, held{by: "signs", args: `{"url":"https://github.com\u2215acme.g\u101dogle.example"}`})
	mustHave(t, alice.get("/approvals/"+string(url)),
		`<span class="odd" title="U+2215 other">∕</span>acme`, `<span class="odd" title="U+101D Myanmar">ဝ</span>`, "∕ is U+2215 other, ဝ is U+101D Myanmar")
	path := "/approvals/" + string(o.hold(t, held{args: `{"text":"\u0444\u0430\u0439\u043b.txt, \u043f\u0440\u0438\u0432\u0435\u0442, caf\u00e9, iPhone\u3092\u8cb7\u3046"}`}))
	mustLack(t, alice.get(path), `class="odd"`, "Some characters look like others")
}

// TestSimilarMemberNamesDiffer checks that similar names of members look different.
func TestSimilarMemberNamesDiffer(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{args: `{"path":"/a","path ":"/b","p\u0430th":"/c","":"/d","pa\nth":"/e","\"\"":"/f","\"path \"":"/g"}`})
	page := regexp.MustCompile(`\s*\n\s*`).ReplaceAllString(alice.get("/approvals/"+string(id)), "")
	mustHave(t, page,
		`<span class="key">path</span>`, `<span class="key">path<span class="code-point" title="is a space">U+0020`, `<span class="key">&#34;path &#34;</span>`,
		`<span class="key">&#34;&#34;</span>`, `<span class="key">&#34;&#34;&#34;&#34;</span>`,
		`p<span class="odd" title="U+0430 Cyrillic">а</span>th`, `pa<span class="code-point" title="is a control character">U+000A`,
	)
}

// TestSpacesInNamesShown checks that unusual spaces in the names of tools and callers are
// shown, with a warning.
func TestSpacesInNamesShown(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{tool: " delete  file ", by: "ops-bot ", args: `{}`})
	const space = `<span class="code-point" title="is a space">U+0020<span class="unseen"> (is a space) </span></span>`
	for _, path := range []string{"/", "/approvals/" + string(id)} {
		mustHave(t, alice.get(path), space+"delete "+space+"file"+space, `ops-bot\u0020`, "Spaces at an end, or several in a row")
	}
	mustHave(t, alice.get("/approvals/"+string(id)), `<title>\u0020delete \u0020file\u0020 `, "This name may not be what it looks like")
	alice.decide(id, "reject", "")
	mustHave(t, alice.get("/history"), space+"delete "+space+"file"+space, `ops-bot\u0020`)
}

// TestLargeArgumentsFoldedAndSearched checks that large arguments are folded, that the search
// covers all of them, and that they are available as text.
func TestLargeArgumentsFoldedAndSearched(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	deep := strings.Repeat(`{"in":[`, 40) + `"needle"` + strings.Repeat(`]}`, 40)
	wide := strings.Repeat(`1234567,`, 20_000) + `"needle"`
	tests := map[string]string{
		"a long text":        `{"text":"` + strings.Repeat("All is well. ", 70_000) + `needle"}`,
		"hidden characters":  `{"text":"` + strings.Repeat(`\u200b`, 150_000) + `needle"}`,
		"binary":             `{"data":"` + strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 35_000) + `","note":"needle"}`,
		"many values":        `{"list":[` + wide + `]}`,
		"nested deeply":      `{"deep":` + deep + `}`,
		"many long names":    `{` + strings.Repeat(`"`+strings.Repeat("n", 400)+`%d":1,`, 2000) + `"needle":2}`,
		"tags all the way":   `{"text":"` + strings.Repeat("<b>", 290_000) + `needle"}`,
		"quotes all the way": `{"text":"` + strings.Repeat(`\"`, 400_000) + `needle"}`,
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			if name == "many long names" {
				n := 0
				args = regexp.MustCompile(`%d`).ReplaceAllStringFunc(args, func(string) string { n++; return fmt.Sprint(n) })
			}
			id := o.hold(t, held{args: args, by: name})
			path := "/approvals/" + string(id)
			page := alice.get(path)
			if len(page) > 700<<10 {
				t.Errorf("the page has %d bytes", len(page))
			}
			if lines := strings.Count(page, "<li"); lines > 3000 {
				t.Errorf("the page has %d items", lines)
			}
			mustHave(t, page[:0]+read(page), "All as text")
			found := read(alice.get(path + "?find=NEEDLE"))
			if !strings.Contains(found, "“NEEDLE” is in the arguments once.") {
				t.Errorf("the search did not find the text")
			}
			text := alice.get(path + "/arguments")
			if !strings.Contains(text, "needle") || len(text) < len(args)*9/10 {
				t.Errorf("the text has %d bytes of %d", len(text), len(args))
			}
			if list := alice.get("/"); len(list) > 100<<10 {
				t.Errorf("the list has %d bytes", len(list))
			}
			alice.decide(id, "reject", "")
		})
	}
}

// TestRedactedValuesHidden checks that values that a workflow redacts are marked as redacted.
// A value with the text "[redacted]" is not marked.
func TestRedactedValuesHidden(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{args: `{"password":"hunter2","note":"[redacted]","users":[{"key":"key of rosa","name":"rosa"}]}`})
	page := alice.get("/approvals/" + string(id))
	mustLack(t, page, "hunter2", "key of rosa")
	mustHave(t, page, "[redacted]", "rosa")
	if got := strings.Count(page, `class="redacted"`); got != 2 {
		t.Errorf("%d values are marked as redacted, want 2", got)
	}
	mustLack(t, alice.get("/approvals/"+string(id)+"/arguments"), "hunter2", "key of rosa")
	mustLack(t, alice.get("/approvals/"+string(id)+"?find=hunter2"), "class=\"tree\">hunter2", "in the arguments once")
	mustLack(t, alice.get("/"), "hunter2", "key of rosa")
}

// TestBinaryValuesDescribed checks that binary values are described and shown.
func TestBinaryValuesDescribed(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{args: `{"image":"` + strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 50) + `","url":"data:text/html;base64,` +
		strings.Repeat("PHNjcmlwdD4", 20) + `","word":"` + strings.Repeat("a", 290) + `","raw":"\u0001\u0002\u0003\u0004\u0005","long":"` + strings.Repeat("word ", 100) +
		`","posing":"data:, ` + strings.Repeat("x", 100) + `; rm -rf /"}`})
	page := alice.get("/approvals/" + string(id))
	mustHave(t, page, "base64, about 900 bytes, looks like image/png", "data URL, about 220 bytes", "binary, 5 bytes", "500 bytes")
	mustLack(t, page, `<details class="fold"`, `id="unread"`)
	mustHave(t, read(page), strings.Repeat("word ", 100), strings.Repeat("iVBORw0KGgoAAAANSUhEUgAA", 50))
}

// TestAmbiguousStringsQuoted checks that a string is in quotes if it could be read as
// another kind of value, or if it is empty.
func TestAmbiguousStringsQuoted(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{args: `{"a":"true","b":true,"c":"","d":" x","e":"12","f":12,"g":"plain","h":"null"}`})
	page := alice.get("/approvals/" + string(id))
	if got := strings.Count(page, `class="value string quoted"`); got != 5 {
		t.Errorf("%d strings are in quotes, want 5", got)
	}
	mustHave(t, page, `<span class="value string">plain</span>`, `<span class="value literal">true</span>`, `<span class="value number">12</span>`)
	mustHave(t, read(alice.get("/")), `a "true"`, `b true`, `c ""`, `g plain`)
}

// TestTruncationMarked checks that every truncated name and value is marked.
func TestTruncationMarked(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	var b strings.Builder
	for i := range 250 {
		fmt.Fprintf(&b, `"k%d":%q,`, i, strings.Repeat("word ", 400))
	}
	long := strings.Repeat("n", 1000)
	id := o.hold(t, held{args: `{` + b.String() + `"last":"` + strings.Repeat("z", 250) + `","` + long + `":1,"digits":` + strings.Repeat("7", 290) + `}`})
	page := alice.get("/approvals/" + string(id))
	for name, want := range map[string]string{
		"last":   `(?s)last.{0,400}zzz…`,
		"digits": `(?s)digits.{0,200}777….{0,200} more are not on this page`,
		"name":   `nnn…`,
		"form":   `I approve without reading \d+\.\d KB`,
	} {
		if !regexp.MustCompile(want).MatchString(page) {
			t.Errorf("%s is truncated without a mark", name)
		}
	}
	mustLack(t, page, strings.Repeat("z", 250), long)
	mustHave(t, read(alice.get("/approvals/"+string(id)+"?view=all")), strings.Repeat("z", 250), long)
}

// TestWideSpacesMarked checks that many spaces and tabs are shown with their number in values, code, diffs,
// lists and reasons, and that they are sent to the browser as they are.
func TestWideSpacesMarked(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	gap := strings.Repeat(" ", 140)
	marked := func(text, note string) string {
		return `<span class="spaces" data-note="` + note + `">` + text + `</span>`
	}
	for name, tt := range map[string]struct{ value, want string }{
		"value":      {"ls;" + gap + "rm -rf /", "ls;" + marked(gap, "140 spaces") + "rm"},
		"code":       {"#!/bin/sh\necho ok\n" + gap + "rm -rf /\n", marked(gap, "140 spaces")},
		"diff":       {"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-echo ok\n+" + gap + "rm -rf /\n", marked(gap, "140 spaces")},
		"tabs":       {"ls;" + strings.Repeat("\t", 30) + "rm", marked(strings.Repeat("\t", 30), "30 tabs")},
		"both":       {"ls;" + strings.Repeat(" \t", 30) + "rm", marked(strings.Repeat(" \t", 30), "30 spaces and 30 tabs")},
		"at the end": {"ls;" + strings.Repeat(" ", 60), marked(strings.Repeat(" ", 60), "60 spaces")},
	} {
		t.Run(name, func(t *testing.T) {
			args, err := json.Marshal(map[string]string{"command": tt.value})
			if err != nil {
				t.Fatal(err)
			}
			id := o.hold(t, held{args: string(args), says: "fine" + gap + "not fine"})
			page := alice.get("/approvals/" + string(id))
			mustHave(t, page, tt.want, "fine"+marked(gap, "140 spaces")+"not fine")
			mustHave(t, alice.get("/"), `data-note="`)
		})
	}
	id := o.hold(t, held{by: "bea", args: `{"command":"ls;` + strings.Repeat(" ", 39) + `rm"}`})
	mustLack(t, alice.get("/approvals/"+string(id)), `class="spaces"`)
	id = o.hold(t, held{args: `{"command":"` + strings.Repeat(" ", 300_000) + `rm"}`})
	if page := alice.get("/approvals/" + string(id)); len(page) > 400_000 {
		t.Errorf("a page with 300,000 spaces has %d bytes", len(page))
	} else {
		mustHave(t, page, " spaces", "more are not on this page")
	}
}
