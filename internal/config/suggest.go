package config

// suggest returns what to add to a complaint about a key that g does not have:
// the known key that is most like it, if one is.
func (g group) suggest(key string) string {
	nearest, least := "", len(key)/3+2 // so many letters may be wrong, less one
	for _, e := range g {
		if d := editDistance(key, e.key); d < least {
			nearest, least = e.key, d
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
}

// editDistance returns how many letters must be inserted, removed or replaced to
// make b of a.
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
