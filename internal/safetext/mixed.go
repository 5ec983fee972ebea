package safetext

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Confusable is a character of a text that looks like another one.
type Confusable struct {
	At   int // its byte offset in the text
	Rune rune
}

// Confusables returns the characters of a text that look like others:
//
//   - letters of another script than the rest of their word, such as the Cyrillic а in pаypal;
//   - Latin letters that hardly any language uses, such as the small capital in ɢoogle;
//   - signs that look like the punctuation of addresses, as in github.com∕acme.
//
// It returns no letters of a word in one script, because readers of that script read it
// correctly. The exception is a word whose letters all look Latin, if a Latin word is joined
// to it, as in аррӏе.com.
func Confusables(text string) []Confusable {
	if isASCII(text) {
		return nil
	}
	var marks []Confusable
	for start := 0; start < len(text); {
		end := start + tokenLength(text[start:])
		if !isASCII(text[start:end]) {
			marks = append(marks, mixedIn(text[start:end], start)...)
		}
		_, size := utf8.DecodeRuneInString(text[end:])
		start = end + size
	}
	return marks
}

// ConfusablesWarning returns a warning that names the results of [Confusables], or "" if there
// are none.
func ConfusablesWarning(marks []Confusable) string {
	runes := make([]rune, len(marks))
	for i, m := range marks {
		runes[i] = m.Rune
	}
	if len(runes) == 0 {
		return ""
	}
	return "Characters that look like others: " + spelled(runes)
}

// spelled names each of the characters once.
func spelled(runes []rune) string {
	seen := map[rune]bool{}
	var parts []string
	for _, r := range runes {
		if seen[r] {
			continue
		}
		seen[r] = true
		if len(parts) < maxOdd {
			parts = append(parts, string(r)+" is "+CodePoint(r)+" "+Script(r))
		}
	}
	if more := len(seen) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// joiners are the ASCII characters that join words in addresses, paths and names.
const joiners = ".-_/@:"

func isJoiner(r rune) bool {
	return strings.ContainsRune(joiners, r) || r >= utf8.RuneSelf && isSign(r)
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || compatible(r)
}

// tokenLength returns the length of the joined words at the beginning of text.
func tokenLength(text string) int {
	for at, r := range text {
		if !inWord(r) && !isJoiner(r) {
			return at
		}
	}
	return len(text)
}

// mixedIn returns the confusable characters of a token that begins at an offset.
func mixedIn(token string, offset int) []Confusable {
	if !strings.ContainsFunc(token, readsAsLatin) {
		return nil
	}
	var words []word
	beside, from := false, 0
	for part := range strings.FieldsFuncSeq(token, isJoiner) {
		at := strings.Index(token[from:], part) + from
		w := newWord(part, offset+at)
		words, beside = append(words, w), beside || w.count[latinLetter] > 0
		from = at + len(part)
	}
	marks := []Confusable{}
	if beside || !strings.ContainsFunc(token, unicode.IsLetter) {
		//mutate:drop internal/inbox.TestConfusableValuesMarked a sign that looks like a slash is not marked
		marks = signsIn(token, offset)
	}
	compound := isCompound(token)
	//mutate:swap "!isDotted(token) && " "" TestConfusables a Greek letter in an address passes for one of a formula
	formulas := !isDotted(token) && !strings.HasPrefix(token, "/")
	for _, w := range words {
		if !formulas || !w.isFormula() {
			w.beside = beside && (!compound || !w.isInCompounds())
			marks = append(marks, w.marks()...)
		}
	}
	slices.SortFunc(marks, func(a, b Confusable) int { return a.At - b.At })
	return slices.Compact(marks)
}

// readsAsLatin reports whether r makes a reader expect Latin letters beside it.
func readsAsLatin(r rune) bool { return isLatin(r) || isDigit(r) }

// isCompound reports whether a token consists of words joined by hyphens only. Addresses,
// paths and file names do not.
func isCompound(token string) bool {
	return !strings.ContainsFunc(strings.TrimRight(token, ".:"), func(r rune) bool { return r != '-' && isJoiner(r) })
}

// A word is a sequence of letters and digits, with their kinds.
type word struct {
	letters []Confusable // all characters that have a kind, see counts
	kinds   []letterKind
	count   [kinds]int
	digits  bool // the word has digits from 0 to 9
	beside  bool // a Latin word is joined to the word
}

func newWord(text string, offset int) word {
	w := word{letters: make([]Confusable, 0, len(text)), kinds: make([]letterKind, 0, len(text))}
	for at, r := range text {
		w.digits = w.digits || isDigit(r)
		if counts(r) {
			kind := kindOf(r)
			w.letters, w.kinds = append(w.letters, Confusable{offset + at, r}), append(w.kinds, kind)
			w.count[kind]++
		}
	}
	if w.count[latinLetter] > 0 && w.count[foreignLetter] > 0 {
		w.acceptAdjoining()
	}
	return w
}

// acceptAdjoining makes the letters of a foreign word neutral if ordinary text joins it to a
// Latin word. Its letters are of adjoining scripts, and at least one looks like no Latin
// letter. A single letter must be a prefix or an ending.
func (w *word) acceptAdjoining() {
	for start := 0; start < len(w.letters); start++ {
		end, unlike := start, false
		for ; end < len(w.letters) && w.adjoins(end); end++ {
			unlike = unlike || !isAlike(w.letters[end].Rune)
		}
		if unlike && (end-start > 1 || start == 0 || end == len(w.letters)) {
			for i := start; i < end; i++ {
				w.kinds[i] = neutralLetter
			}
			w.count[foreignLetter] -= end - start
			w.count[neutralLetter] += end - start
		}
		start = max(start, end-1)
	}
}

// adjoins reports whether a letter is of an adjoining script.
func (w *word) adjoins(i int) bool {
	r := w.letters[i].Rune
	return w.kinds[i] == foreignLetter && (unicode.IsDigit(r) || unicode.In(r, adjoining...))
}

// isFormula reports whether a word has one special letter as in formulas, units and names of
// substances, and otherwise Latin letters: the special letter alone, as in α_s, with one Latin
// letter, as in ωt and mℓ, or a Greek letter after capitals, as in PPARγ.
func (w *word) isFormula() bool {
	const greek, sets = "αβγεζηκσςτχω", "ℂℍℕℙℚℝℤ"
	n := len(w.letters)
	if w.count[latinLetter] != n-1 {
		return false
	}
	first, last := w.letters[0].Rune, w.letters[n-1].Rune
	switch {
	case n <= 2 && strings.ContainsRune(greek+sets+"ℓ", last), n == 2 && strings.ContainsRune(greek+sets, first):
		return true
	default:
		return strings.ContainsRune(greek, last) && !slices.ContainsFunc(w.letters[:n-1], func(m Confusable) bool { return !unicode.IsUpper(m.Rune) })
	}
}

// isInCompounds reports whether ordinary text joins a word to a Latin word with a hyphen: a
// Greek letter, as in α-helix, a Hebrew prefix, or a Russian word with one of the letters
// вмнт, which look like small capitals, as in web-сервер.
func (w *word) isInCompounds() bool {
	return len(w.letters) == 1 && unicode.In(w.letters[0].Rune, unicode.Greek, unicode.Hebrew) ||
		slices.ContainsFunc(w.letters, func(m Confusable) bool { return strings.ContainsRune("вмнт", m.Rune) })
}

// marks returns the confusable letters of a word. In a word with Latin letters, these are the
// letters of the rarer script, and variants. In any other word, these are all letters if the
// word is disguised and a Latin word is joined to it, and foreign digits beside the digits
// from 0 to 9.
func (w *word) marks() []Confusable {
	latin := w.count[latinLetter]
	odd := foreignLetter
	if w.count[foreignLetter] > latin {
		odd = latinLetter
	}
	disguised := latin == 0 && w.beside && w.isDisguised()
	var marks []Confusable
	for i, m := range w.letters {
		kind := w.kinds[i]
		if disguised || latin == 0 && w.isForeignDigit(i) || latin > 0 && (kind == odd || kind == variantLetter) {
			marks = append(marks, m)
		}
	}
	return marks
}

// isForeignDigit reports whether a letter is a digit of another script in a word that has
// digits from 0 to 9.
func (w *word) isForeignDigit(i int) bool {
	return w.digits && w.kinds[i] == foreignLetter && unicode.IsDigit(w.letters[i].Rune)
}

// isDisguised reports whether all letters of a word without plain Latin letters look like
// Latin letters.
func (w *word) isDisguised() bool {
	for i, m := range w.letters {
		if kind := w.kinds[i]; kind != variantLetter && (kind != foreignLetter || !isAlike(m.Rune)) {
			return false
		}
	}
	return slices.ContainsFunc(w.letters, func(m Confusable) bool { return unicode.IsLetter(m.Rune) })
}
