package policy

import (
	"slices"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go/types"
)

// wordsOf returns the words of a name in lower case: runs of letters and runs of digits, split
// where a capital begins a word. get_user, getUser and GetUser are get and user; HTTPServer2 is
// http, server and 2.
func wordsOf(name string) []string {
	var words []string
	var begin int
	runes := []rune(name)
	flush := func(end int) {
		if end > begin {
			words = append(words, strings.ToLower(string(runes[begin:end])))
		}
		begin = end
	}
	for i, r := range runes {
		letter, digit := unicode.IsLetter(r), unicode.IsDigit(r)
		switch {
		case !letter && !digit:
			flush(i)
			begin = i + 1
		case i == begin:
		//mutate:false TestWords a digit hides a word
		case digit != unicode.IsDigit(runes[i-1]):
			flush(i)
		case unicode.IsUpper(r):
			endsCapitals := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			//mutate:false cmd/thoughtgate.TestFirstPolicyOnPublicServers a capital does not begin a word
			if !unicode.IsUpper(runes[i-1]) || endsCapitals {
				flush(i)
			}
		}
	}
	flush(len(runes))
	return words
}

// HasWord reports whether a name has one of the words, as Cedar policies see its words.
func HasWord(name string, words []string) bool {
	all, _ := wordAttributes(name)
	return slices.ContainsFunc(words, func(word string) bool { return all.Contains(types.String(word)) })
}

// wordAttributes returns the words of a name for Cedar. They include whole runs of letters, so
// that deLETE_user has the word delete.
func wordAttributes(name string) (words types.Set, first types.String) {
	var all []types.Value
	for i, w := range wordsOf(name) {
		if i == 0 {
			first = types.String(w)
		}
		all = append(all, types.String(w))
	}
	for run := range strings.FieldsFuncSeq(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		//mutate:drop cmd/thoughtgate.TestFirstPolicyOnPublicServers capitals hide a word
		all = append(all, types.String(strings.ToLower(run)))
	}
	return types.NewSet(all...), first
}
