package plain

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Signs that may be taken for those that are in addresses.
const (
	fakeSlashes = "∕⁄⧸⟋╱᜵∖⧵⧹﹨"
	fakeColons  = "∶꞉ː˸﹕։׃܃܄፡᛬⁚︓︰"
	fakeDots    = "․﹒܁܂꘎"
	fakeOthers  = "﹫﹖﹟"
	fakes       = fakeSlashes + fakeColons + fakeDots + fakeOthers

	// Those of Chinese and Japanese text are ordinary outside of addresses.
	wideDots  = "．。｡"
	wideAt    = "＠"
	wideSigns = wideDots + wideAt + "／＼：？＃〳ノﾉ丿"
)

// allSigns are all of them.
var allSigns = setOf(fakes, wideSigns)

// isSign reports whether r may be taken for a sign that joins words, and is no letter that
// words of its own script have.
func isSign(r rune) bool { return allSigns[r] && (r == 'ː' || !unicode.IsLetter(r)) }

// signsIn returns the signs of a token that may be taken for others. They stand between
// Latin letters, digits and other signs.
func signsIn(token string, offset int) []Mark {
	var marks []Mark
	s := signs{eastAsian: strings.ContainsFunc(token, isEastAsian)}
	for at, r := range token {
		_, size := utf8.DecodeRuneInString(token[at:])
		next, _ := utf8.DecodeRuneInString(token[at+size:])
		if s.deceives(r, next) {
			marks = append(marks, Mark{offset + at, r})
		}
		s.inAddress = s.inAddress || r == '@' || r == '/' && strings.HasSuffix(token[:at], ":/")
		s.last = r
	}
	return marks
}

func isEastAsian(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo)
}

// signs is where one is in a token.
type signs struct {
	eastAsian bool // the token has letters of Chinese, Japanese or Korean
	inAddress bool // the token began as an address
	last      rune // what stands before
}

// deceives reports whether r may be taken for another sign between what stands before and
// what is next.
func (s *signs) deceives(r, next rune) bool {
	switch {
	case !allSigns[r] || !isBesideSign(s.last) || !isBesideSign(next):
		return false
	case strings.ContainsRune(fakes, r):
		return r != '⁄' || !isDigit(s.last) || !isDigit(next) // a fraction
	default:
		return s.inAddress || s.joins(r, next)
	}
}

// joins reports whether r, outside of an address, makes one of what stands before and
// what is next.
func (s *signs) joins(r, next rune) bool {
	dot := strings.ContainsRune(wideDots, r) && isLetter(s.last) && isLetter(next)
	return !s.eastAsian && (dot || strings.ContainsRune(wideAt, r))
}

// isBesideSign reports whether r stands beside the signs in an address.
func isBesideSign(r rune) bool {
	return isLetter(r) || isDigit(r) || strings.ContainsRune(joiners, r) || isSign(r)
}

// isLetter and isDigit are about ASCII.
func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

func isDigit(r rune) bool { return '0' <= r && r <= '9' }
