package safetext_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// marked returns the confusable characters of a text.
func marked(t *testing.T, text string) string {
	t.Helper()
	got := ""
	for _, m := range safetext.Confusables(text) {
		got += string(m.Rune)
		if !strings.HasPrefix(text[m.At:], string(m.Rune)) {
			t.Errorf("Confusables(%q): %q is not at %d", text, m.Rune, m.At)
		}
	}
	return got
}

// TestConfusables checks letters of another script than the rest of their word, and unusual
// letters.
func TestConfusables(t *testing.T) {
	tests := map[string]string{ // text to confusable characters
		"p\u0430yp\u0430l.com":               "\u0430\u0430",
		"rm -rf /hom\u0435":                  "\u0435",
		"g\u03bfogle":                        "\u03bf",
		"g\u03c3ogle":                        "\u03c3",
		"\u043f\u0430\u0440\u043e\u043bo":    "o", // one Latin letter among Cyrillic ones
		"\u0430\u0440\u0440\u04cf\u0435.com": "\u0430\u0440\u0440\u04cf\u0435",
		"\u0430\u0440\u0440\u04cf\u0435":     "",
		"x\xff\u0430y":                       "\u0430",
		"s\u0440":                            "\u0440",
		"https://g\u101dogle.com":            "\u101d", // Burmese
		"admin@p\u2d54ypal.com":              "\u2d54", // Tifinagh
		"goog\u05dfe.com":                    "\u05df", // Hebrew
		"goog\u05df\u05dfe.com":              "\u05df\u05df",
		"app\u16c1e":                         "\u16c1", // Runes
		"a\u13bfb":                           "\u13bf", // Cherokee
		"\ua4e0pple.com":                     "\ua4e0", // Lisu
		"ro\u2c9fot":                         "\u2c9f", // Coptic
		"b\u0585ok":                          "\u0585", // Armenian
		"log\u0e40n":                         "\u0e40", // Thai
		"ww\u0e1e\u0e1e.com":                 "\u0e1e\u0e1e",
		"goog\u0627e":                        "\u0627", // Arabic
		"pass\u17b4\u3164\U00016fe4word":     "",       // hidden characters are escaped anyway
		"pass\u17d2word":                     "\u17d2", // a mark of Khmer
		"g\u0966ogle":                        "\u0966", // a digit of Hindi
		"b\u0966\u0966k":                     "\u0966\u0966",
		"1\u06650 EUR":                       "\u0665",
		"\u0445.com":                         "\u0445", // one letter joined to a Latin word
		"\u0430.com":                         "\u0430",
		"\u04af.com":                         "\u04af",
		"https://\u0445.com/login":           "\u0445",
		"\u0430-bank":                        "\u0430",
		"file_\u0430":                        "\u0430",
		"\u03b1-bank.example":                "\u03b1",
		"\u0e1e\u0e1e\u0e1e.example.com":     "\u0e1e\u0e1e\u0e1e",
		"\u0262oogle.com":                    "\u0262", // Latin letters that hardly any language uses
		"t\u1d0fken":                         "\u1d0f",
		"pa\u0261e":                          "\u0261",
		"bank\u01c0e":                        "\u01c0",
		"\u017fecret":                        "\u017f",
		"\u212aernel":                        "\u212a",
		"\ufb01le.txt":                       "\ufb01",
		"adm\uff49n":                         "\uff49", // other forms
		"\U0001d41aadmin":                    "\U0001d41a",
		"\uff47\uff4f.com":                   "\uff47\uff4f",
		"\u1d18\u1d00\u028f.com":             "\u1d18\u1d00\u028f",
		"\u05d5Google":                       "\u05d5", // prefixes and endings that look Latin
		"PDF\u10d8":                          "\u10d8",
		"hell\u0585":                         "\u0585",
		"\ua4ee\ua4d1\ua4d1\ua4e1.com":       "\ua4ee\ua4d1\ua4d1\ua4e1", // whole words that look Latin
		"\u13aa\u13e2\u13e2\u13de.com":       "\u13aa\u13e2\u13e2\u13de",
		"\u2d54\u2d54.com":                   "\u2d54\u2d54",
		"\u1450\u146b\u144c.com":             "\u1450\u146b\u144c",
		"dat\u03b1":                          "\u03b1", // letters of formulas
		"p\u03b1ypal":                        "\u03b1",
		"\u03b1pple":                         "\u03b1",
		"G\u03bf":                            "\u03bf",
		"PPAR\u03bf":                         "\u03bf",
		"file_\u03bf":                        "\u03bf",
		"IFN\u03b3.example":                  "\u03b3",
		"file_\u03b1.txt":                    "\u03b1",
		"/home/\u03b1":                       "\u03b1",
		"\u03c9t@example":                    "\u03c9",
		"goog\u2113e":                        "\u2113",
		"\u2113s":                            "\u2113",
		"PAYPA\u2113":                        "\u2113",
		"\u211dNA.example":                   "\u211d",
		"iPhone\u0661\u0665":                 "\u0661\u0665", // digits that look like others
		"\ufb01nal":                          "\ufb01",
	}
	for text, want := range tests {
		if got := marked(t, text); got != want {
			t.Errorf("Confusables(%q) = %+q; want %+q", text, got, want)
		}
	}
	if got := warning("p\u0430y p\u0430l"); got != "Characters that look like others: \u0430 is U+0430 Cyrillic" {
		t.Errorf("the warning is %q", got)
	}
	if got := warning("g\u101dogle.com\u2215x"); got != "Characters that look like others: \u101d is U+101D Myanmar, \u2215 is U+2215 other" {
		t.Errorf("the warning is %q", got)
	}
	if got := warning("plain"); got != "" {
		t.Errorf("the warning is %q for plain text", got)
	}
}

// TestForeignLettersInLatinWordMarked checks that every letter of another script inside a Latin
// word is confusable. The exceptions look like no Latin letters, and are ordinary beside them.
func TestForeignLettersInLatinWordMarked(t *testing.T) {
	for r := rune(0x80); r < 0x20000; r++ {
		foreign := unicode.IsLetter(r) && !unicode.In(r, unicode.Latin, unicode.Common, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo)
		if !foreign || safetext.Hidden(r) || strings.ContainsRune("ΓΔΘΛΞΠΣΦΨΩδθλμξπφψ\u2126", r) {
			continue
		}
		if got := marked(t, "ab"+string(r)+"cd"); got != string(r) {
			t.Errorf("%U in a word: %+q", r, got)
		}
	}
}

// TestConfusableSignsMarked checks signs that look like the punctuation of an address.
func TestConfusableSignsMarked(t *testing.T) {
	for _, sign := range "\u2215\u2044\u29f8\u2024\u2236\ua789\ufe55\ufe6b\uff0f\uff0e\u3002\uff61\uff1a\uff20\uff1f\uff03\u30ce" {
		text := "https://github.com" + string(sign) + "acme.evil.example/x"
		if got := marked(t, text); got != string(sign) {
			t.Errorf("Confusables(%q) = %+q", text, got)
		}
	}
	for text, want := range map[string]string{
		"https:\u2215\u2215github.com": "\u2215\u2215",
		"github\u2024com":              "\u2024",
		"google\uff0ecom":              "\uff0e",
		"google\u3002com":              "\u3002",
		"ann\uff20example.com":         "\uff20",
		"/tmp\u29f8x":                  "\u29f8",
		"https://github.com\uff0facme.evil.example/\u597d":   "\uff0f",
		"https://github.com\u2215\u00e4rger.evil.example/x":  "\u2215",
		"https://github.com\u2215a\u0308rger.evil.example/x": "\u2215",
		"https://github.com\u2215\u0436.evil.example":        "\u2215",
		"https://github.com\u2215\u65e5\u672c.evil.example":  "\u2215",
		"https://github.com\u2215%61cme.evil.example":        "\u2215",
		"https://github.com\u2215?x":                         "\u2215",
		"https://github.com\u2215~x":                         "\u2215",
		"https://github.com\u0589\u0436.evil.example":        "\u0589",
		"https://github.com\uff0f\u00e4.evil.example/x":      "\uff0f",
		"https://github.com\uff0f\u0436.evil.example/x":      "\uff0f",
		"https://192.0.2.1\u20441/x":                         "\u2044",
		"github.com\u2215%61cme.evil.example":                "\u2215",
		"github.com\u2215\u0436.evil.example":                "\u2215",
		"\u0436\u2215github.com":                             "\u2215",
		"\u00e9\u2024com":                                    "\u2024",
		"e\u0301\u2024com":                                   "\u2024",
		"caf\u00e9\u3002com":                                 "\u3002",
		"\u00fc\uff20example.com":                            "\uff20",
		"192\u2024168\u20241\u20241":                         "\u2024\u2024\u2024",
		"10.0.0\u20241":                                      "\u2024",
		"10.0.0.1\u221524":                                   "\u2215",
		"\u2215etc":                                          "\u2215",
		"\u2024ssh":                                          "\u2024",
		"/home\u2215":                                        "\u2215",
		"\u2024\u2024\u2215etc":                              "\u2024\u2024\u2215",
		"16\u22369":                                          "", // ratios and fractions
		"1\u20442 and 3\u22154":                              "",
	} {
		if got := marked(t, text); got != want {
			t.Errorf("Confusables(%q) = %+q; want %+q", text, got, want)
		}
	}
}

// ordinary are ordinary texts in many languages.
var ordinary = []string{
	"plain text, café, naïve, straße, https://example.com/a?b=c#d",
	"Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. GROẞE Grüße, 5 µm, 3 m², 1½ Äpfel",
	"Dès Noël où un zéphyr haï me vêt de glaçons würmiens, je dîne d’exquis rôtis de bœuf au kir à l’aÿ d’âge mûr. Mᵐᵉ Curie, 1ᵉʳ, nº 5",
	"Do bạch kim rất quý nên sẽ dùng để lắp vô xương. Đặng Thị Hằng gửi email cho Nguyễn Văn Ưng.",
	"Pijamalı hasta yağız şoföre çabucak güvendi. IĞDIR ılık, İstanbul'da, adım_adım.txt",
	"Pchnąć w tę łódź jeża lub ośm skrzyń fig. Zażółć gęślą jaźń",
	"El pingüino Wenceslao hizo kilómetros; 1ª vez. Čeština, slovenčina, magyarország, română șț, íslenska þð, malti ħ, cymraeg ŵ, azərbaycan",
	"Съешь же ещё этих мягких французских булок, да выпей чаю. файл.txt, USB-кабель, Wi-Fi-роутер, web-сервер, отчёт_2024.xlsx, https://пример.рф/путь, IT-отдел и/или HR",
	"Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів! Об’єкт, пам'ять",
	"Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. γεια σου, αρχείο.txt, το PDF και το USB, Wi-Fi",
	"Δx, 5µs, σ², 10kΩ, λ-calculus, π/2, α-helix, the τ-lepton. γ-ray and β-test",
	"いろはにほへと ちりぬるを。iPhoneを買う。ＡＢＣ株式会社、iOS／Android対応、URL：https://example.com/a。次はVer.2へ更新、A：B、Node.jsを使う。「OK？」と聞いた",
	"我能吞下玻璃而不伤身体。我用Go。Java也可以，邮箱：ann@example.com。详情见https://example.com/a。谢谢！支持iOS／Android，v1.2：修复",
	"키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. iPhone을 사다, PDF로",
	"صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت. ملف PDF، الـPDF والـUSB، رقم ١٢٣، iPhone ١٥، تقرير.pdf",
	"متن فارسی با عدد ۱۲۳ و PDF. گزارش.pdf",
	"דג סקרן שט בים מאוכזב ולפתע מצא חברה. קובץ PDF, ה-PDF, ו-Google, מסמך.pdf, קבצי PDFים, שלום abc",
	"ऋषियों को सताने वाले दुष्ट राक्षसों। PDF फ़ाइल, फ़ाइल.pdf, १२३, iPhoneका",
	"বাংলা লেখা, PDFটি, ১২৩",
	"เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กดปุ่มOKเพื่อบันทึก ใช้iPhoneได้ บนFacebook ไฟล์.pdf ๑๒๓",
	"မြန်မာစာ PDFဖိုင်, ភាសាខ្មែរ PDFឯកសារ, ພາສາລາວ PDFເອກະສານ",
	"தமிழ் PDF, తెలుగు PDF, ಕನ್ನಡ PDF, മലയാളം PDF, ქართული PDF-ის, հայերեն PDF, አማርኛ PDF",
	"xⁿ, H₂O, CO₂e, 1ˢᵗ, 2⁄3, 1⁄2-inch, № 5, ™, 25 °C, 10–20, a—b, “quoted”, ‘so’, …, •, →",
	"אני משתמש בAPI, הPDF, לGitHub, שGoogle",
	"APIর, PDFে, PDFஐ, APIಯ, APIය, PDFნ, PDFի, PDFն, PDFን, PDF፡ፋይል, https://example.com/a։",
	"https://bo.wikipedia.org/wiki/བོད་ཡིག, ދިވެހި.pdf, https://mn.wikipedia.org/wiki/ᠮᠣᠩᠭᠣᠯ",
	"https://zgh.wikipedia.org/wiki/ⵜⴰⵎⴰⵣⵉⵖⵜ, https://arc.wikipedia.org/wiki/ܠܫܢܐ, https://iu.wikipedia.org/wiki/ᐃᓄᒃᑎᑐᑦ",
	"https://nqo.wikipedia.org/wiki/ߒߞߏ, https://sat.wikipedia.org/wiki/ᱥᱟᱱᱛᱟᱲᱤ, ꦧꦱꦗꦮ.pdf, https://am.wikipedia.org/wiki/አዲስ፡አበባ",
	"α_s, x_α, α/β-hydrolase, PPARγ, IFNγ, TNFα/IL1β. ωt, κB, NF-κB, 10 mℓ, 5mℓ, ℓ1-norm, xℝ, ℝn; 地址﹕Taipei",
	"Ɛyɛ me anigye sɛ mihyiaa wo. Ŋutsu la ɖu nu. Ɗan ƙasa",
}

// TestOrdinaryTextNotMarked checks that ordinary text has no confusable characters.
func TestOrdinaryTextNotMarked(t *testing.T) {
	for _, text := range ordinary {
		if got := warning(text); got != "" {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"\uff21\uff22\uff23", "p\u0061y", "\u05e9\u05dc\u05d5\u05dd abc"} { // the first has wide letters only
		if got := marked(t, text); got != "" {
			t.Errorf("Confusables(%q) = %+q", text, got)
		}
	}
}

func FuzzConfusables(f *testing.F) {
	f.Add("p\u0430yp\u0430l.com")
	f.Add("https://github.com\u2215acme\uff0fx\u02d0\u30ce1\u06650")
	for _, text := range ordinary {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		last := -1
		for _, m := range safetext.Confusables(text) {
			if m.At <= last || safetext.Hidden(m.Rune) || !strings.HasPrefix(text[m.At:], string(m.Rune)) {
				t.Fatalf("Confusables(%q) has %q at %d after %d", text, m.Rune, m.At, last)
			}
			last = m.At
		}
	})
}

// warning returns the warning about the confusable characters of a text.
func warning(text string) string { return safetext.ConfusablesWarning(safetext.Confusables(text)) }
