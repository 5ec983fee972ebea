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

// Mixed returns the characters of a text that may be taken for others: letters that do
// not belong to the script of their word, such as the Cyrillic one in pаypal, Latin
// letters that hardly any language writes, such as the small capital in ɢoogle, and signs
// that look like those of addresses, as in github.com∕acme. A word in one script is what
// it looks like to those who read that script, and none of its letters is returned,
// unless all of them look like Latin ones and a Latin word is joined to it, as in
// аррӏе.com.
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

// MixedWarning says which characters of a text may be taken for others. It is empty
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

// joiners are what words are joined by in addresses, paths and names.
const joiners = ".-_/@:"

func isJoiner(r rune) bool {
	return strings.ContainsRune(joiners, r) || r >= utf8.RuneSelf && isSign(r)
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || compatible(r)
}

// tokenLength returns the length of the words at the beginning of text that are
// joined to each other.
func tokenLength(text string) int {
	for at, r := range text {
		if !inWord(r) && !isJoiner(r) {
			return at
		}
	}
	return len(text)
}

// mixedIn returns the marks of a token that begins at an offset.
func mixedIn(token string, offset int) []Mark {
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
	marks := []Mark{}
	if beside || !strings.ContainsFunc(token, unicode.IsLetter) {
		marks = signsIn(token, offset)
	}
	compound, formula := isCompound(token), mayBeFormula(token)
	for _, w := range words {
		if formula && w.hasSymbol() {
			continue
		}
		w.beside = beside && (!compound || !w.isInCompounds())
		marks = append(marks, w.marks()...)
	}
	slices.SortFunc(marks, func(a, b Mark) int { return a.At - b.At })
	return slices.Compact(marks)
}

// readsAsLatin reports whether r is something beside which other characters may be taken
// for Latin ones.
func readsAsLatin(r rune) bool {
	return isLatin(r) || isDigit(r)
}

// isCompound reports whether a token is words with hyphens between them, and thus no
// address, path or name of a file.
func isCompound(token string) bool {
	return !strings.ContainsFunc(strings.TrimRight(token, ".:"), func(r rune) bool { return r != '-' && isJoiner(r) })
}

// A word is a run of letters and digits, by what its letters are.
type word struct {
	letters []Mark // and digits of other scripts, and marks
	kinds   []letterKind
	count   [kinds]int
	digits  bool // it has digits from 0 to 9
	beside  bool // a Latin word is joined to it
}

func newWord(text string, offset int) word {
	var w word
	for at, r := range text {
		w.digits = w.digits || isDigit(r)
		if !counts(r) {
			continue
		}
		kind := kindOf(r)
		w.letters, w.kinds = append(w.letters, Mark{offset + at, r}), append(w.kinds, kind)
		w.count[kind]++
	}
	if w.count[latinLetter] > 0 && w.count[foreignLetter] > 0 {
		w.acceptAdjoining()
	}
	return w
}

// acceptAdjoining makes the letters of foreign words neutral that stand beside a Latin one
// in ordinary text: letters of an adjoining script that do not all look Latin. One alone is
// a prefix or an ending.
func (w *word) acceptAdjoining() {
	for start := 0; start < len(w.letters); start++ {
		end, unlike := start, false
		for ; end < len(w.letters) && w.adjoins(end); end++ {
			unlike = unlike || !isAlike(w.letters[end].Rune)
		}
		if unlike && (end-start > 1 || start == 0 || end == len(w.letters)) {
			for i := start; i < end; i++ {
				w.kinds[i] = neutralLetter
				w.count[foreignLetter]--
				w.count[neutralLetter]++
			}
		}
		start = max(start, end-1)
	}
}

// adjoins reports whether a letter is of a script whose words stand beside Latin ones.
func (w *word) adjoins(i int) bool {
	r := w.letters[i].Rune
	return w.kinds[i] == foreignLetter && (unicode.IsDigit(r) || unicode.In(r, adjoining...))
}

// isInCompounds reports whether ordinary text joins a word to a Latin one with a hyphen:
// a Greek letter, as in α-helix, a Hebrew prefix, or a Russian word with letters that look
// like Latin ones only if one does not look closely, as in web-сервер.
func (w *word) isInCompounds() bool {
	return len(w.letters) == 1 && unicode.In(w.letters[0].Rune, unicode.Greek, unicode.Hebrew) ||
		slices.ContainsFunc(w.letters, func(m Mark) bool { return strings.ContainsRune("вмнт", m.Rune) })
}

// marks returns the letters that may be taken for others.
func (w *word) marks() []Mark {
	latin, foreign := w.count[latinLetter], w.count[foreignLetter]
	switch {
	case latin == 0 && w.beside && w.isDisguised():
		return w.of(foreignLetter, variantLetter)
	case latin == 0 && w.digits:
		return w.foreignDigits()
	case latin == 0:
		return nil
	case foreign > latin:
		return w.of(latinLetter, variantLetter)
	default:
		return w.of(foreignLetter, variantLetter)
	}
}

// isDisguised reports whether all letters of a word that has no plain Latin ones may be
// taken for such.
func (w *word) isDisguised() bool {
	letters := false
	for i, m := range w.letters {
		if kind := w.kinds[i]; kind != variantLetter && (kind != foreignLetter || !isAlike(m.Rune)) {
			return false
		}
		letters = letters || unicode.IsLetter(m.Rune)
	}
	return letters
}

func (w *word) of(kinds ...letterKind) []Mark {
	var marks []Mark
	for i, m := range w.letters {
		if slices.Contains(kinds, w.kinds[i]) {
			marks = append(marks, m)
		}
	}
	return marks
}

// foreignDigits returns the digits of other scripts.
func (w *word) foreignDigits() []Mark {
	var marks []Mark
	for i, m := range w.letters {
		if w.kinds[i] == foreignLetter && unicode.IsDigit(m.Rune) {
			marks = append(marks, m)
		}
	}
	return marks
}
