package config

// suggest returns the known key that is most similar to key, as the end of a message, or
// an empty text.
func (g Group) suggest(key string) string {
	keys := make([]string, len(g))
	for i, e := range g {
		keys[i] = e.Key
	}
	return Suggest(key, keys)
}

// Suggest returns the word that is most similar to a misspelled one, as the end of a message,
// or an empty text.
func Suggest(misspelled string, words []string) string {
	nearest := Nearest(misspelled, words)
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
}

// Nearest returns the word that is most similar to a misspelled one, or an empty text.
func Nearest(misspelled string, words []string) string {
	nearest, least := "", len(misspelled)/3+2 // the distance must be less
	for _, w := range words {
		if d := editDistance(misspelled, w); d < least {
			nearest, least = w, d
		}
	}
	return nearest
}

// editDistance returns the Levenshtein distance between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
