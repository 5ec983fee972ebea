package safetext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Signs that look like the punctuation of addresses.
const (
	fakeSlashes = "∕⁄⧸⟋╱᜵∖⧵⧹﹨"
	fakeDots    = "․﹒܁܂꘎"
	fakes       = fakeSlashes + fakeDots + "∶꞉ː˸﹕։׃܃܄፡᛬⁚︓︰﹫﹖﹟"

	// The punctuation of some scripts, which is ordinary beside their letters.
	punctuation = "։׃܃܄፡᛬܁܂꘎﹕﹒﹖﹟﹫︓︰"

	// The punctuation of Chinese and Japanese, which is ordinary outside of addresses.
	wideDots  = "．。｡"
	wideSigns = wideDots + "＠／＼：？＃〳ノﾉ丿"
)

// allSigns are all these signs.
var allSigns = setOf(fakes + wideSigns)

// isSign reports whether r looks like a sign that joins words, and is not a letter of words in
// its script.
func isSign(r rune) bool { return allSigns[r] && (r == 'ː' || !unicode.IsLetter(r)) }

// signsIn returns the confusable signs of a token: in an address at any position, and elsewhere
// beside Latin letters, digits and other signs.
func signsIn(token string, offset int) []Confusable {
	var marks []Confusable
	s := signs{
		eastAsian: strings.ContainsFunc(token, isEastAsian),
		numeric:   !strings.ContainsFunc(token, unicode.IsLetter),
		dotted:    isDotted(token),
	}
	for at, r := range token {
		if unicode.IsMark(r) {
			continue
		}
		s.next, _ = utf8.DecodeRuneInString(token[at+utf8.RuneLen(r):])
		if allSigns[r] && s.deceives(r) {
			marks = append(marks, Confusable{offset + at, r})
		}
		s.inAddress = s.inAddress || r == '@' || r == '/' && strings.HasSuffix(token[:at], ":/")
		s.last = r
	}
	return marks
}

func isEastAsian(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo)
}

// signs is the context of a sign in a token.
type signs struct {
	eastAsian  bool // the token has letters of Chinese, Japanese or Korean
	numeric    bool // the token has no letters
	dotted     bool // see isDotted
	inAddress  bool // the token began as an address
	last, next rune // the characters before and after the sign; 0 at the beginning, [utf8.RuneError] at the end
}

// deceives reports whether readers may mistake a sign for another one.
func (s *signs) deceives(r rune) bool {
	wide := strings.ContainsRune(wideSigns, r)
	switch {
	case wide && s.inAddress:
		return s.continues()
	case wide:
		return s.joins(r)
	case s.numeric:
		return s.isBetween() && s.dividesNumbers(r)
	case strings.ContainsRune(punctuation, r):
		return s.isBetween() || s.inAddress && s.isBesideLetter()
	default:
		return s.inAddress || s.makesPath(r)
	}
}

// makesPath reports whether r seems to join the characters before and after it to one path or
// name.
func (s *signs) makesPath(r rune) bool {
	if r == '⁄' && s.isFraction() {
		return false
	}
	//mutate:swap "s.isBesideLetter() || " "" TestConfusableSignsMarked a sign that looks like a slash is not marked beside letters of another script
	return s.isBetween() || s.isBesideLetter() || s.isAtEdge(r)
}

// dividesNumbers reports whether r looks like a slash or dot between two numbers.
func (s *signs) dividesNumbers(r rune) bool {
	return isFakeSlash(r) && !s.isFraction() || strings.ContainsRune(fakeDots, r)
}

func isFakeSlash(r rune) bool { return strings.ContainsRune(fakeSlashes, r) }

// isBetween reports whether addresses have the characters on both sides of a sign.
func (s *signs) isBetween() bool { return isBesideSign(s.last) && isBesideSign(s.next) }

// isBesideLetter reports whether addresses have the character on one side of a sign, and a
// letter of any script is on the other side.
func (s *signs) isBesideLetter() bool {
	return isBesideSign(s.last) && unicode.IsLetter(s.next) || unicode.IsLetter(s.last) && isBesideSign(s.next)
}

// isAtEdge reports whether r is at the beginning or the end of a path.
func (s *signs) isAtEdge(r rune) bool {
	return strings.ContainsRune(fakeSlashes+fakeDots, r) && s.last == 0 && isBesideSign(s.next) ||
		isFakeSlash(r) && isLatin(s.last) && s.next == utf8.RuneError
}

// isFraction reports whether a slash is part of a fraction.
func (s *signs) isFraction() bool { return isDigit(s.last) && isDigit(s.next) && !s.dotted }

// continues reports whether an address continues after a wide sign. In Chinese and Japanese
// text the address ends there.
func (s *signs) continues() bool {
	return isBesideSign(s.last) && (isBesideSign(s.next) || unicode.IsLetter(s.next) && !isEastAsian(s.next))
}

// joins reports whether r, outside of an address, seems to join the characters before and
// after it.
func (s *signs) joins(r rune) bool {
	dot := strings.ContainsRune(wideDots, r) && isLatin(s.last) && isLatin(s.next)
	return !s.eastAsian && !s.numeric && (dot || r == '＠' && s.isBetween())
}

// isBesideSign reports whether addresses have r beside their punctuation.
func isBesideSign(r rune) bool {
	return isLatin(r) || isDigit(r) || strings.ContainsRune(joiners, r) || isSign(r)
}

// isDotted reports whether a token has dots, colons or at signs before its end, as addresses,
// file names and versions have.
func isDotted(token string) bool { return strings.ContainsAny(strings.TrimRight(token, ".:"), ".:@") }

func isLatin(r rune) bool { return isLetter(r) || r >= utf8.RuneSelf && unicode.Is(unicode.Latin, r) }

// isLetter and isDigit report whether r is an ASCII letter or digit.
func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

func isDigit(r rune) bool { return '0' <= r && r <= '9' }
