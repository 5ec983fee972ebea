package config

// suggest returns the known key that is most similar to key, as the end of a message, or
// an empty text.
func (g Group) suggest(key string) string {
	nearest, least := "", len(key)/3+2 // the distance must be less
	for _, e := range g {
		if d := editDistance(key, e.Key); d < least {
			nearest, least = e.Key, d
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
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
