package plain

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Mark is a character of a text that may be taken for another one.
type Mark struct {
	At   int // where in the text it begins
	Rune rune
}

// Mixed returns the letters of a text that may be taken for others: those that do
// not belong to the script of their word, such as the Cyrillic letter in pаypal. A
// word in one script is what it looks like to those who read that script, and none
// of its letters is returned, unless all of them look like Latin ones and a Latin
// word is joined to it, as in аррӏе.com.
func Mixed(text string) []Mark {
	if isASCII(text) {
		return nil
	}
	var marks []Mark
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

// MixedWarning says which letters of a text may be taken for others. It is empty
// if there are none.
func MixedWarning(text string) string {
	marks := Mixed(text)
	runes := make([]rune, len(marks))
	for i, m := range marks {
		runes[i] = m.Rune
	}
	if len(runes) == 0 {
		return ""
	}
	return "Letters of different scripts in one word: " + spelled(runes)
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

// joiners are what words are joined by in addresses, paths and names.
const joiners = ".-_/@:"

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || compatible(r)
}

// tokenLength returns the length of the words at the beginning of text that are
// joined to each other.
func tokenLength(text string) int {
	for at, r := range text {
		if !inWord(r) && !strings.ContainsRune(joiners, r) {
			return at
		}
	}
	return len(text)
}

// mixedIn returns the marks of a token that begins at an offset.
func mixedIn(token string, offset int) []Mark {
	var words []word
	latin, from := false, 0
	for part := range strings.FieldsFuncSeq(token, func(r rune) bool { return strings.ContainsRune(joiners, r) }) {
		at := strings.Index(token[from:], part) + from
		w := newWord(part, offset+at)
		words, latin = append(words, w), latin || w.count[latinLetter] > 0
		from = at + len(part)
	}
	var marks []Mark
	for _, w := range words {
		marks = append(marks, w.marks(latin)...)
	}
	return marks
}

// A letterKind is what a letter is to a reader of Latin script.
type letterKind int

const (
	neutralLetter letterKind = iota // of a script that looks like no other
	latinLetter
	foreignLetter // of a script of which some letters look like Latin ones
	variantLetter // a Latin letter in another form, such as a wide or a bold one
)

// alike are letters of other scripts that look like Latin ones.
const alike = "асеорхуіјѕһԁԛԝӏԍвкмнтАВЕКМНОРСТХУІЈЅҺӀ" + // Cyrillic
	"αινκορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + // Greek
	"օոսհցգզՕՍԼՏ" // Armenian

func kindOf(r rune) letterKind {
	switch {
	case compatible(r):
		return variantLetter
	case unicode.Is(unicode.Latin, r):
		return latinLetter
	case unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu, unicode.Deseret):
		return foreignLetter
	default:
		return neutralLetter
	}
}

// compatible reports whether r is a Latin letter or a digit in another form, which
// means the same to some programs and not to others.
func compatible(r rune) bool {
	return 0xFF10 <= r && r <= 0xFF5A && (unicode.IsLetter(r) || unicode.IsDigit(r)) || // wide
		0x1D400 <= r && r <= 0x1D7FF || // mathematical
		0x2160 <= r && r <= 0x217F || // Roman numerals
		0x24B6 <= r && r <= 0x24E9 || // in circles
		r == 'ɑ' || r == 'ɡ'
}

// A word is a run of letters and digits, by what its letters are.
type word struct {
	letters  []Mark
	kinds    []letterKind
	count    [4]int
	alike    int // how many letters of another script look like Latin ones
	cyrillic bool
}

func newWord(text string, offset int) word {
	var w word
	for at, r := range text {
		if !unicode.IsLetter(r) && !compatible(r) {
			continue
		}
		kind := kindOf(r)
		w.letters, w.kinds = append(w.letters, Mark{offset + at, r}), append(w.kinds, kind)
		w.count[kind]++
		w.cyrillic = w.cyrillic || unicode.Is(unicode.Cyrillic, r)
		if kind == foreignLetter && (strings.ContainsRune(alike, r) || !unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian)) {
			w.alike++
		}
	}
	return w
}

// marks returns the letters that may be taken for others. Beside says that a Latin
// word is joined to this one.
func (w word) marks(beside bool) []Mark {
	latin, foreign := w.count[latinLetter], w.count[foreignLetter]
	switch {
	case latin == 0 && beside && foreign > 1 && w.alike == len(w.letters):
		return w.of(foreignLetter)
	case latin == 0:
		return nil
	case w.cyrillic && foreign > latin:
		return w.of(latinLetter, variantLetter)
	case w.cyrillic || w.alike > 0:
		return w.of(foreignLetter, variantLetter)
	default:
		return w.of(variantLetter)
	}
}

func (w word) of(kinds ...letterKind) []Mark {
	var marks []Mark
	for i, m := range w.letters {
		if slices.Contains(kinds, w.kinds[i]) {
			marks = append(marks, m)
		}
	}
	return marks
}
