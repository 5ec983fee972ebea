package policy

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Signs of a regular expression in a pattern, which is a glob. A deny rule that was written
// as a regular expression matches nothing, so the gate warns of it. Ids of principals may
// have | and (, as auth0|123 has. URIs and ids may end with .* as a glob.
var (
	signsInIDs   = regexp.MustCompile(`^\^|^\.\*|\$$|[.\])]\+|\\[A-Za-z]`)
	signsInURIs  = regexp.MustCompile(signsInIDs.String() + `|[|(]`)
	signsInNames = regexp.MustCompile(signsInURIs.String() + `|[^*]\.\*`)
)

// literals are escaped characters and classes, without the closing bracket.
var literals = regexp.MustCompile(`\\[^A-Za-z]|\[(\\[^A-Za-z]|[^\]\\])*`)

// signsFor returns the signs for the pattern of a name or a URI.
func signsFor(pattern string) *regexp.Regexp {
	if strings.Contains(pattern, "://") {
		return signsInURIs
	}
	return signsInNames
}

// regexSign returns the first sign in a pattern, or "".
func regexSign(pattern string, signs *regexp.Regexp) string {
	sign := signs.FindString(literals.ReplaceAllString(pattern, "x"))
	if strings.HasSuffix(sign, ".*") {
		return ".*"
	}
	return sign
}

func regexText(pattern, sign string) string {
	return fmt.Sprintf("%q has %s like a regular expression, but it is a glob, in which * matches any text", pattern, sign)
}

// regexes warns of patterns of r that look like regular expressions.
func (r *rule) regexes() []Problem {
	var warnings []Problem
	for _, c := range conditions {
		if c.signs == nil {
			continue
		}
		settings, texts := c.texts(&r.Rule)
		for i, text := range texts {
			pattern, signs := c.signs(text)
			if sign := regexSign(pattern, signs); sign != "" {
				warning := regexText(pattern, sign) + "; to match " + sign + " itself, put a backslash before it"
				warnings = append(warnings, Problem{r.where.member(settings[i]), warning})
			}
		}
	}
	return warnings
}

// regexes warns of patterns for resource.name in p that look like regular expressions.
// Arguments may have any text.
func (p *cedarPolicy) regexes() []Problem {
	var warnings []Problem
	inspect := func(n ast.IsNode) bool {
		like, ok := n.(ast.NodeTypeLike)
		if !ok {
			return true
		}
		if of, ok := like.Arg.(ast.NodeTypeAccess); ok && of.Arg == (ast.NodeTypeVariable{Name: "resource"}) {
			pattern := strings.Trim(string(like.Value.MarshalCedar()), `"`)
			if sign := regexSign(pattern, signsFor(pattern)); sign != "" {
				warnings = append(warnings, Problem{p.where, regexText(pattern, sign)})
			}
		}
		return true
	}
	for _, c := range p.tree().Conditions {
		ast.Inspect(ast.NewNode(c.Body), inspect)
	}
	return warnings
}
