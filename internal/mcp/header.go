package mcp

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// decodeHeader decodes the value of a mirrored header, which may be wrapped in base64. It
// reports false for invalid base64 and for characters that a header cannot carry.
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

// EncodeHeader encodes text for a mirrored header.
func EncodeHeader(text string) string {
	plain := printable(text) && strings.TrimSpace(text) == text && text != ""
	if plain && !strings.HasPrefix(text, encodedPrefix) {
		return text
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(text)) + encodedSuffix
}
