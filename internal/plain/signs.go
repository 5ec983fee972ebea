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

	// Those of them that are ordinary beside letters of some scripts.
	punctuation = "։׃܃܄፡᛬܁܂꘎﹕﹒﹖﹟﹫︓︰"

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

// signsIn returns the signs of a token that may be taken for others. In an address they
// stand anywhere, and elsewhere beside Latin letters, digits and other signs.
func signsIn(token string, offset int) []Mark {
	var marks []Mark
	s := signs{
		eastAsian: strings.ContainsFunc(token, isEastAsian),
		numeric:   !strings.ContainsFunc(token, unicode.IsLetter),
		dotted:    isDotted(token),
	}
	for at, r := range token {
		if unicode.IsMark(r) {
			continue
		}
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
	numeric   bool // the token has no letters
	dotted    bool // see isDotted
	inAddress bool // the token began as an address
	last      rune // what stands before; 0 at the beginning
}

// deceives reports whether r may be taken for another sign between what stands before and
// what is next.
func (s *signs) deceives(r, next rune) bool {
	switch {
	case !allSigns[r]:
		return false
	case strings.ContainsRune(wideSigns, r):
		return s.inAddress && s.continues(next) || s.joins(r, next)
	case s.numeric:
		return s.isInNumbers(r, next)
	case s.inAddress:
		return !strings.ContainsRune(punctuation, r) || s.isBetween(next) || s.isBesideLetter(next)
	default:
		return s.isInWords(r, next)
	}
}

// isInNumbers reports whether r may be taken for a sign of an address that has no letters.
func (s *signs) isInNumbers(r, next rune) bool {
	slash := strings.ContainsRune(fakeSlashes, r) && !s.isFraction(next)
	return s.isBetween(next) && (slash || strings.ContainsRune(fakeDots, r))
}

// isInWords reports whether r, outside of what begins as an address, may be taken for
// another sign.
func (s *signs) isInWords(r, next rune) bool {
	switch {
	case strings.ContainsRune(punctuation, r):
		return s.isBetween(next)
	case r == '⁄' && s.isFraction(next):
		return false
	default:
		return s.isBetween(next) || s.isBesideLetter(next) || s.isAtEdge(r, next)
	}
}

// isBetween reports whether what stands on both sides of a sign is what addresses have.
func (s *signs) isBetween(next rune) bool { return isBesideSign(s.last) && isBesideSign(next) }

// isBesideLetter reports whether that is so on one side, and a letter of any script is on
// the other.
func (s *signs) isBesideLetter(next rune) bool {
	return isBesideSign(s.last) && unicode.IsLetter(next) || unicode.IsLetter(s.last) && isBesideSign(next)
}

// isAtEdge reports whether r is at the beginning or the end of a path.
func (s *signs) isAtEdge(r, next rune) bool {
	slash := strings.ContainsRune(fakeSlashes, r)
	return (slash || strings.ContainsRune(fakeDots, r)) && s.last == 0 && isBesideSign(next) ||
		slash && isLatin(s.last) && next == utf8.RuneError
}

// isFraction reports whether a slash is that of a fraction.
func (s *signs) isFraction(next rune) bool { return isDigit(s.last) && isDigit(next) && !s.dotted }

// continues reports whether an address goes on after a wide sign. Chinese and Japanese text
// does not.
func (s *signs) continues(next rune) bool {
	return isBesideSign(s.last) && (isBesideSign(next) || unicode.IsLetter(next) && !isEastAsian(next))
}

// joins reports whether r, outside of an address, makes one of what stands before and
// what is next.
func (s *signs) joins(r, next rune) bool {
	switch {
	case s.eastAsian || s.numeric:
		return false
	case strings.ContainsRune(wideDots, r):
		return isLatin(s.last) && isLatin(next)
	default:
		return strings.ContainsRune(wideAt, r) && s.isBetween(next)
	}
}

// isBesideSign reports whether r stands beside the signs in an address.
func isBesideSign(r rune) bool {
	return isLatin(r) || isDigit(r) || strings.ContainsRune(joiners, r) || isSign(r)
}

// isDotted reports whether a token has dots, colons or at signs, as addresses, names of files
// and versions have, and not only at its end.
func isDotted(token string) bool { return strings.ContainsAny(strings.TrimRight(token, ".:"), ".:@") }

func isLatin(r rune) bool { return isLetter(r) || r >= utf8.RuneSelf && unicode.Is(unicode.Latin, r) }

// isLetter and isDigit are about ASCII.
func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

func isDigit(r rune) bool { return '0' <= r && r <= '9' }
