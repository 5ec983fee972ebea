package policy

import "strings"

// Hints are the four hints of [Annotations] as a text, such as "tf--": one letter each for
// readOnlyHint, destructiveHint, idempotentHint and openWorldHint, which is t, f, or - if the
// hint is missing.
type Hints string

// NoHints are the hints of a tool without any.
const NoHints Hints = "----"

// WorstHints have the value that warns for each hint. [Hints.Strictest] puts a missing hint between
// the two values. When policy is evaluated, a missing hint counts as the value that warns.
const WorstHints Hints = "ftft"

// Hints returns the hints of a. A read-only tool without destructiveHint is not destructive.
func (a *Annotations) Hints() Hints {
	b := make([]byte, 0, len(NoHints))
	for _, hint := range [...]*bool{a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld} {
		switch {
		case hint == nil:
			b = append(b, '-')
		case *hint:
			b = append(b, 't')
		default:
			b = append(b, 'f')
		}
	}
	if b[0] == 't' && b[1] == '-' {
		b[1] = 'f'
	}
	return Hints(b)
}

// WithHints returns a copy of a with the hints.
func (a Annotations) WithHints(h Hints) Annotations {
	for i, hint := range [...]**bool{&a.ReadOnly, &a.Destructive, &a.Idempotent, &a.OpenWorld} {
		*hint = nil
		if h.at(i) != '-' {
			given := h.at(i) == 't'
			*hint = &given
		}
	}
	return a
}

// at returns the letter at index i. Invalid hints count as missing.
func (h Hints) at(i int) byte {
	if len(h) != len(NoHints) || h[i] != 't' && h[i] != 'f' {
		return '-'
	}
	return h[i]
}

// Strictest returns for each hint the stricter one of h and other.
func (h Hints) Strictest(other Hints) Hints {
	b := []byte(NoHints)
	for i := range b {
		switch mine, its := h.at(i), other.at(i); {
		case mine == its || mine == WorstHints[i]:
			b[i] = mine
		case its == WorstHints[i]:
			b[i] = its
		}
	}
	return Hints(b)
}

// hintWords have the words for each hint: if it is t, and if it is f.
var hintWords = [...][2]string{
	{"only reads", "does not only read"},
	{"may destroy", "does not destroy"},
	{"can be repeated without harm", "cannot be repeated without harm"},
	{"reaches beyond its server", "stays within its server"},
}

// Looser describes in words which hints of h warn less than the older hints, for example
// "its server now says that it only reads". It returns "" if there are none.
func (h Hints) Looser(older Hints) string {
	said := func(i int, letter byte) string {
		if letter == 't' {
			return hintWords[i][0]
		}
		return hintWords[i][1]
	}
	var changed, missing, all []string
	for i, stricter := range []byte(h.Strictest(older)) {
		switch now := h.at(i); now {
		case stricter: // does not warn less
		case '-': // is missing now
			missing = append(missing, said(i, stricter))
		default:
			changed = append(changed, said(i, now))
		}
	}
	if len(changed) > 0 {
		all = append(all, "its server now says that it "+strings.Join(changed, " and "))
	}
	if len(missing) > 0 {
		all = append(all, "its server no longer says that it "+strings.Join(missing, " and "))
	}
	return strings.Join(all, ", and ")
}
