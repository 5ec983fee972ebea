package main

import (
	"slices"
	"testing"
)

// Shells expand the words that they are offered, so only words without a meaning for them are.
func TestCompletionOffersPlainWords(t *testing.T) {
	got, _ := offer([]string{
		"delete_file", "$(touch owned)", "`touch owned`", "a b", "a\nb", "-rf", "*", "ünlü", "", "delete_file",
		"tg_1\tdelete_file", "tg_2\t$(touch owned)", "files:read.all",
	})
	if want := []string{"delete_file", "tg_1\tdelete_file", "tg_2", "files:read.all"}; !slices.Equal(got, want) {
		t.Errorf("offered %q; want %q", got, want)
	}
}
