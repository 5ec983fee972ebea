package config

import "strings"

// An environment is the variables of the process, and which of them the file
// has asked for.
type environment struct {
	vars map[string]string
	used map[string]bool
}

func newEnvironment(environ []string) environment {
	env := environment{vars: map[string]string{}, used: map[string]bool{}}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env.vars[name] = value
		}
	}
	return env
}

// expand replaces ${NAME}, ${NAME:-default} and $$ in s, and says what is
// wrong with the variables in it. Any other dollar sign is refused: it is more
// often a variable without its braces than a dollar sign.
func (env environment) expand(s string) (text string, wrong []string) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String(), wrong
		}
		if s, found = strings.CutPrefix(rest, "$"); found {
			out.WriteByte('$')
			continue
		}
		inside, after, ok := reference(rest)
		if !ok {
			return "", append(wrong, "has a dollar sign that does not begin ${NAME} or ${NAME:-default}; write $$ for a literal dollar sign")
		}
		value, missing := env.lookup(inside)
		if missing != "" {
			wrong = append(wrong, missing)
		}
		out.WriteString(value)
		s = after
	}
}

// reference cuts {NAME} or {NAME:-default} from the start of s. References
// inside a default are not supported, and refused rather than cut in half.
func reference(s string) (inside, after string, ok bool) {
	s, open := strings.CutPrefix(s, "{")
	inside, after, closed := strings.Cut(s, "}")
	name, _, _ := strings.Cut(inside, ":-")
	return inside, after, open && closed && isVariable(name) && !strings.Contains(inside, "$")
}

func isVariable(s string) bool {
	return s != "" && only(s, letters+digits+"_") && !strings.Contains(digits, s[:1])
}

// lookup returns the value of NAME or NAME:-default. As in a shell, the
// default also stands for a variable that is empty.
func (env environment) lookup(inside string) (value, missing string) {
	name, fallback, hasFallback := strings.Cut(inside, ":-")
	env.used[name] = true
	value, ok := env.vars[name]
	switch {
	case hasFallback && value == "":
		return fallback, ""
	case !ok:
		return "", "environment variable " + name + " is not set"
	default:
		return value, ""
	}
}
