package safetext

import (
	"strings"
	"unicode"
)

// A letterKind is the role of a letter in a word with Latin letters.
type letterKind int

const (
	neutralLetter letterKind = iota // looks like no Latin letter, and is ordinary beside Latin letters
	latinLetter
	foreignLetter // of another script
	variantLetter // an unusual form of a Latin letter or a digit, such as a wide letter or a small capital
	kinds         // the number of kinds
)

// kindOf returns the kind of a character for which [counts] is true.
func kindOf(r rune) letterKind {
	switch {
	case r < 0x80:
		return latinLetter
	case unicode.Is(unicode.Han, r): // first for speed, since it is most of Chinese text
		return neutralLetter
	//mutate:swap " || isRareLatin(r)" "" TestConfusables a small capital is not marked
	case compatible(r) || isRareLatin(r):
		return variantLetter
	case unicode.Is(unicode.Latin, r):
		return latinLetter
	case unicode.IsDigit(r):
		return foreignLetter
	//mutate:swap "Common" "Common, unicode.Myanmar" TestConfusables a letter of a rare script is not marked
	case unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Common) || strings.ContainsRune(clearGreek, r):
		return neutralLetter
	default:
		return foreignLetter
	}
}

// counts reports whether r has a kind. Accents, the digits from 0 to 9 and hidden characters
// have none; hidden characters are always shown escaped.
func counts(r rune) bool {
	if r < 0x80 {
		return isLetter(r)
	}
	spacing := unicode.IsMark(r) && !unicode.Is(unicode.Inherited, r)
	return (unicode.IsLetter(r) || compatible(r) || unicode.IsDigit(r) || spacing) && !Hidden(r)
}

// clearGreek are the Greek letters that look like no Latin letters. Formulas and units
// combine them with Latin letters, as in Δx and kΩ.
const clearGreek = "ΓΔΘΛΞΠΣΦΨΩδθλμξπφψ\u2126"

// compatible reports whether r is a compatibility form of a Latin letter or a digit. Some
// programs treat it as that letter or digit.
func compatible(r rune) bool {
	return unicode.Is(forms, r) || 0x2100 <= r && r <= 0x214F && r != 0x2126 && unicode.IsLetter(r) // signs such as that of Kelvin
}

// forms are compatibility forms of Latin letters and digits.
var forms = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x2160, Hi: 0x217F, Stride: 1}, // Roman numerals
		{Lo: 0x24B6, Hi: 0x24E9, Stride: 1}, // in circles
		{Lo: 0xFF10, Hi: 0xFF19, Stride: 1}, // wide
		{Lo: 0xFF21, Hi: 0xFF3A, Stride: 1},
		{Lo: 0xFF41, Hi: 0xFF5A, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1D400, Hi: 0x1D7FF, Stride: 1}}, // mathematical
}

// isRareLatin reports whether r is a Latin letter that hardly any language uses, such as a
// phonetic letter, a small capital or a ligature. Many of them look like common letters or
// signs. Superscript and subscript letters do not, and are not rare in this sense.
func isRareLatin(r rune) bool {
	switch {
	case r <= 0x24F: // to the end of Latin Extended-B
		return strings.ContainsRune(rareLatin, r)
	case r <= 0x2AF: // of the phonetic alphabet
		return !strings.ContainsRune(phoneticInUse, r)
	case 0x1E00 <= r && r <= 0x1EFF:
		return 0x1E9A <= r && r <= 0x1E9D
	default:
		return unicode.Is(unicode.Latin, r) && !unicode.Is(unicode.Lm, r)
	}
}

const (
	rareLatin     = "ĲĳŉſƄƅƖƧƨƻƼƽƾƿǀǁǂǃǄǅǆǇǈǉǊǋǌǱǲǳȷɁɂ"
	phoneticInUse = "ɓɔɖɗəɛɣɨɲʃʉʊʒ" // in African languages and in Azerbaijani
)

// isAlike reports whether a letter or digit of another script looks like a Latin letter or a
// digit from 0 to 9. It is true for the letters of alike, and for all letters of the scripts
// in imitating.
func isAlike(r rune) bool { return alike[r] || unicode.In(r, imitating...) }

// alike are the letters and digits with the skeleton of a Latin letter or digit (UTS 39), for
// scripts in which most words have other letters too.
var alike = setOf("асеорхуіјѕһԁԛԝӏԍвкмнтүѵѡҽАВЕКМНОРСТХУІЈЅҺӀҮѴԚԜԌ" + // Cyrillic
	"αινκορτυχωηγϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹͿ" + // Greek
	"օոռսհցգզյլւաՕՍԼՏ" + "ხოიყძჿჽ" + // Armenian, Georgian
	"וןסחיזװײ" + "اٱهةەہ" + // Hebrew, Arabic
	"พบทรเๅ" + "ທພບຣເ" + "ဝဂငပ" + // Thai, Lao, Burmese
	"ऽा" + "া" + "ਠ" + "ଠଂ" + "டப" + "ం" + "ಂ" + "ഠംഗ" + "ං" + // scripts of India and Sri Lanka
	"ሀሠበዐነ" + // Ethiopic
	"ⴰⵔⵙⵓⵏⵍⵜⵊⵅⵝⴹⵟⵎⵡⵀ" + "ܐܘܝܠ" + "ށރސ" + // Tifinagh, Syriac, Thaana
	"ᐁᐯᐱᐸᑌᑎᑕᑐᑫᑭᑯᑲᒍᒐᒥᒧᒪᒿᔑᔕᕼᕮᖇᖴᖯᗅᗞᗪᗰᗯᗴᗷᘔᙆᑊᐟᐠᐨᐩ" + // of Canada
	"ᱚᱜᱛ" + "ߊߋߎ" + // Ol Chiki, N'Ko
	"٠١٥٧۰۱۵۷०০৪৭੦੪૦୦௦౦೦൦๐໐၀០") // digits

func setOf(text string) map[rune]bool {
	set := make(map[rune]bool)
	for _, r := range text {
		set[r] = true
	}
	return set
}

// imitating are the scripts in which most letters look like Latin letters.
var imitating = []*unicode.RangeTable{
	unicode.Cherokee, unicode.Lisu, unicode.Coptic, unicode.Runic, unicode.Old_Italic, unicode.Gothic, unicode.Deseret, unicode.Elbasan,
	unicode.Lycian, unicode.Lydian, unicode.Carian, unicode.Osage, unicode.Warang_Citi, unicode.Pau_Cin_Hau, unicode.Medefaidrin,
	unicode.Bassa_Vah, unicode.Miao, unicode.Old_Permic, unicode.Caucasian_Albanian, unicode.Glagolitic,
}

// adjoining are the scripts whose words follow or precede Latin words without a space in
// ordinary text: they add prefixes or endings to foreign words, or do not use spaces.
var adjoining = []*unicode.RangeTable{
	unicode.Hebrew, unicode.Arabic, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi,
	unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Armenian,
	unicode.Georgian, unicode.Ethiopic,
}
