package config

import "strings"

// An environment has the environment variables, and the uses of them in the file.
type environment struct {
	vars map[string]string
	used map[string][]string // the paths of the settings that use a variable
}

func newEnvironment(environ []string) environment {
	env := environment{vars: map[string]string{}, used: map[string][]string{}}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env.vars[name] = value
		}
	}
	return env
}

// expand replaces ${NAME}, ${NAME:-default} and $$ in s, the value of a setting, and returns
// problems with its variables. Any other dollar sign is a problem: most often it begins a
// variable without braces.
func (env environment) expand(setting, s string) (text string, problems []string) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String(), problems
		}
		if s, found = strings.CutPrefix(rest, "$"); found {
			out.WriteByte('$')
			continue
		}
		inside, after, ok := reference(rest)
		if !ok {
			return "", append(problems, "has a dollar sign that does not begin ${NAME} or ${NAME:-default}; write $$ for a literal dollar sign")
		}
		value, missing := env.lookup(setting, inside)
		if missing != "" {
			problems = append(problems, missing)
		}
		out.WriteString(value)
		s = after
	}
}

// reference cuts {NAME} or {NAME:-default} from the start of s. It refuses references
// inside a default, which are not supported.
func reference(s string) (inside, after string, ok bool) {
	s, open := strings.CutPrefix(s, "{")
	inside, after, closed := strings.Cut(s, "}")
	name, _, _ := strings.Cut(inside, ":-")
	return inside, after, open && closed && isVariable(name) && !strings.Contains(inside, "$")
}

func isVariable(s string) bool {
	return s != "" && only(s, letters+digits+"_") && !strings.Contains(digits, s[:1])
}

// lookup returns the value of NAME or NAME:-default. As in a shell, the default also
// replaces an empty value.
func (env environment) lookup(setting, inside string) (value, missing string) {
	name, fallback, hasFallback := strings.Cut(inside, ":-")
	env.used[name] = append(env.used[name], setting)
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
