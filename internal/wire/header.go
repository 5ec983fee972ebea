package wire

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// decodeHeader returns the text that the value of a mirroring header stands
// for: itself, or what is wrapped in base64 because it would not survive as it
// is. It reports false for a broken wrapping and for bytes a header cannot
// carry.
func decodeHeader(value string) (string, bool) {
	inner, wrapped := strings.CutPrefix(value, encodedPrefix)
	if wrapped {
		inner, wrapped = strings.CutSuffix(inner, encodedSuffix)
	}
	if !wrapped {
		return value, printable(value)
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(inner)
	if err != nil || strings.ContainsAny(inner, "\r\n") || !utf8.Valid(decoded) {
		return "", false
	}
	return string(decoded), true
}

func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\t' && (c < 0x20 || c > 0x7e) {
			return false
		}
	}
	return true
}

// EncodeHeader returns text as a mirroring header carries it.
func EncodeHeader(text string) string {
	plain := printable(text) && strings.TrimSpace(text) == text && text != ""
	if plain && !strings.HasPrefix(text, encodedPrefix) {
		return text
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(text)) + encodedSuffix
}
