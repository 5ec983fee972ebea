package plain

import (
	"strings"
	"unicode"
)

// A letterKind is what a letter is to a reader of Latin script.
type letterKind int

const (
	neutralLetter letterKind = iota // is not taken for a Latin one, and stands beside Latin ones in ordinary text
	latinLetter
	foreignLetter // of another script
	variantLetter // a Latin letter or a digit in another form, such as a wide or a small capital one
	kinds         // how many kinds there are
)

// kindOf returns the kind of what [counts].
func kindOf(r rune) letterKind {
	switch {
	case r < 0x80:
		return latinLetter
	case unicode.Is(unicode.Han, r): // first, because Chinese text has little else
		return neutralLetter
	case compatible(r) || isRareLatin(r):
		return variantLetter
	case unicode.Is(unicode.Latin, r):
		return latinLetter
	case unicode.IsDigit(r):
		return foreignLetter
	case unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Common) || strings.ContainsRune(clearGreek, r):
		return neutralLetter
	default:
		return foreignLetter
	}
}

// counts reports whether r is a part of a word that has a kind. Accents have none, nor
// have digits from 0 to 9, and hidden characters, which are escaped wherever they are shown.
func counts(r rune) bool {
	switch {
	case r < 0x80:
		return isLetter(r)
	case unicode.IsLetter(r) || compatible(r) || unicode.IsDigit(r):
		return !Hidden(r)
	default:
		return unicode.IsMark(r) && !unicode.Is(unicode.Inherited, r) && !Hidden(r)
	}
}

// clearGreek are Greek letters that look like no Latin ones. Formulas and units have them
// beside Latin letters, as in Δx and kΩ.
const clearGreek = "ΓΔΘΛΞΠΣΦΨΩδθλμξπφψ\u2126"

// compatible reports whether r is a Latin letter or a digit in another form, which
// means the same to some programs and not to others.
func compatible(r rune) bool {
	return unicode.Is(forms, r) || 0x2100 <= r && r <= 0x214F && r != 0x2126 && unicode.IsLetter(r) // signs such as that of Kelvin
}

// forms are other forms of Latin letters and digits.
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

// isRareLatin reports whether r is a Latin letter that hardly any language writes, such
// as those of phonetic scripts, small capitals and ligatures. Many look like common
// letters or signs. Raised and lowered letters do not.
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

// isAlike reports whether a letter of another script may be taken for a Latin letter or a
// digit. If nobody has listed those of a script, all of them may.
func isAlike(r rune) bool { return alike[r] || !unicode.In(r, listed...) && !unicode.IsDigit(r) }

// alike are letters and digits of the listed scripts that look like Latin letters or like
// the digits from 0 to 9.
var alike = setOf("асеорхуіјѕһԁԛԝӏԍвкмнтүѵѡҽАВЕКМНОРСТХУІЈЅҺӀҮѴԚԜԌ", // Cyrillic
	"αινκορτυχωηγϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹͿ", // Greek
	"օոռսհցգզյլւաՕՍԼՏ", "ხოიყძჿჽ",    // Armenian, Georgian
	"וןסחיזװײ", "اٱهةەہ", // Hebrew, Arabic
	"พบทรเๅ", "ທພບຣເ", "ဝဂငပ", // Thai, Lao, Burmese
	"ऽा", "া", "ਠ", "ଠଂ", "டப", "ం", "ಂ", "ഠംഗ", "ං", // scripts of India and Sri Lanka
	"ሀሠበዐነ", // Ethiopic
	"ⴰⵔⵙⵓⵏⵍⵜⵊⵅⵝⴹⵟⵎⵡⵀ", "ܐܘܝܠ", "ށރސ", // Tifinagh, Syriac, Thaana
	"ᐁᐯᐱᐸᑌᑎᑕᑐᑫᑭᑯᑲᒍᒐᒥᒧᒪᒿᔑᔕᕼᕮᖇᖴᖯᗅᗞᗪᗰᗯᗴᗷᘔᙆᑊᐟᐠᐨᐩ", // of Canada
	"ᱚᱜᱛ", "ߊߋߎ", // Ol Chiki, N'Ko
	"٠١٥٧۰۱۵۷०০৪৭੦੪૦୦௦౦೦൦๐໐၀០", // digits
)

func setOf(texts ...string) map[rune]bool {
	set := make(map[rune]bool)
	for _, text := range texts {
		for _, r := range text {
			set[r] = true
		}
	}
	return set
}

// listed are the scripts whose letters that look like Latin ones are in alike.
var listed = append([]*unicode.RangeTable{
	unicode.Cyrillic, unicode.Greek, unicode.Tibetan, unicode.Mongolian, unicode.Thaana, unicode.Syriac, unicode.Tifinagh, unicode.Canadian_Aboriginal,
	unicode.Nko, unicode.Ol_Chiki, unicode.Adlam, unicode.Vai, unicode.Yi, unicode.Meetei_Mayek, unicode.Chakma, unicode.Limbu,
	unicode.Lepcha, unicode.Javanese, unicode.Balinese, unicode.Sundanese, unicode.Buginese, unicode.Batak, unicode.Tagalog, unicode.Cham,
	unicode.Tai_Le, unicode.New_Tai_Lue, unicode.Tai_Tham, unicode.Tai_Viet, unicode.Kayah_Li, unicode.Bamum, unicode.Hanifi_Rohingya,
}, adjoining...)

// adjoining are scripts whose words stand beside Latin ones without a space in ordinary
// text: prefixes and endings of foreign words, and scripts that have no spaces.
var adjoining = []*unicode.RangeTable{
	unicode.Hebrew, unicode.Arabic, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi,
	unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Armenian,
	unicode.Georgian, unicode.Ethiopic,
}
