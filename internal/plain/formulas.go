package plain

import (
	"strings"
	"unicode"
)

// Letters of formulas and units that look like Latin ones only if one does not look closely.
const (
	greekSymbols = "αβγεζηκσςτχω"
	otherSymbols = "ℂℍℕℙℚℝℤ"
	litre        = 'ℓ'
)

// mayBeFormula reports whether a token is no address, no absolute path and no name of a file.
func mayBeFormula(token string) bool { return !isDotted(token) && !strings.HasPrefix(token, "/") }

// hasSymbol reports whether a word has one letter as formulas, units and names of substances
// have it, beside Latin ones at most: alone, as in α_s, with one Latin letter, as in ωt
// and mℓ, or Greek after capitals, as in PPARγ.
func (w *word) hasSymbol() bool {
	at := w.symbol()
	switch last := len(w.letters) - 1; {
	case at < 0:
		return false
	case last == 0:
		return true
	case w.letters[at].Rune == litre:
		return last == 1 && at == last
	case last == 1:
		return true
	default:
		return at == last && strings.ContainsRune(greekSymbols, w.letters[at].Rune) && isUpper(w.letters[:last])
	}
}

// symbol returns which letter is the only one that is not Latin, if formulas have it, and -1
// otherwise.
func (w *word) symbol() int {
	if w.count[latinLetter] != len(w.letters)-1 {
		return -1
	}
	for i, kind := range w.kinds {
		r := w.letters[i].Rune
		if kind != latinLetter && (r == litre || strings.ContainsRune(greekSymbols+otherSymbols, r)) {
			return i
		}
	}
	return -1
}

func isUpper(letters []Mark) bool {
	for _, m := range letters {
		if !unicode.IsUpper(m.Rune) {
			return false
		}
	}
	return true
}
