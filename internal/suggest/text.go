package suggest

import (
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

const (
	mostName   = 120
	mostPeople = 5
)

// Text returns the report as YAML, whose comments have the evidence.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %d calls from %s to %s: %d proposals. Nothing was changed; copy what you accept.\n", r.Calls, date(r.First), date(r.Last), len(r.Proposals))
	if len(r.Proposals) > 0 {
		b.WriteString("# Each was tried alone: it changes the verdict on exactly the calls of its evidence.\nrules:\n")
	}
	for i := range r.Proposals {
		r.Proposals[i].write(&b, i+1)
	}
	if len(r.Grants) > 0 {
		b.WriteString("\n# Standing approvals that people may give with their next approval of such a call:\n")
	}
	for i := range r.Grants {
		r.Grants[i].write(&b)
	}
	if notes := r.Notes(); len(notes) > 0 {
		b.WriteString("\n# " + strings.Join(notes, "\n# ") + "\n")
	}
	if len(r.Unused) > 0 {
		b.WriteString("\n# No recorded call reaches these rules. Risk of removing them: they may be for calls that are still to come.\n")
	}
	for _, u := range r.Unused {
		fmt.Fprintf(&b, "#   %s %q → %s\n", name(u.Rule), name(u.Match), u.Does)
	}
	return b.String()
}

// Notes says why nothing is proposed for other approved calls.
func (r *Report) Notes() []string {
	var notes []string
	if r.ByPolicies > 0 {
		notes = append(notes, fmt.Sprintf("%d more approved calls were held by Cedar policies, for which no rule is proposed. A workflow with grants.longest allows standing approvals for them.", r.ByPolicies))
	}
	if r.Unrecorded > 0 {
		notes = append(notes, fmt.Sprintf("%d more approved calls have no complete arguments in the record, so no rule for arguments is proposed. The setting record.arguments changes that.", r.Unrecorded))
	}
	return notes
}

func (p *Proposal) write(b *strings.Builder, number int) {
	why := "only reads"
	if p.Kind == Arguments {
		why = "was always approved with such arguments"
	}
	e := &p.Evidence
	fmt.Fprintf(b, "\n  # %d. %s on %s %s. Insert before %s.\n", number, p.Name, p.Upstream, why, name(p.Before))
	fmt.Fprintf(b, "  # Evidence: %d calls, of which %d were held and %d approved, since %s by %s; none was rejected.\n", e.Calls, e.Held, e.Approved, date(e.Since), e.people())
	fmt.Fprintf(b, "  # Saves: %.1f approvals a week.\n  # Risk: %s.\n  %s\n", p.PerWeek, p.Risk, p.Rule)
	if p.Cedar != "" {
		b.WriteString("  # The rule needs these policies in a file of cedar.policies. They deny arguments that they cannot read.\n")
		for line := range strings.Lines(p.Cedar) {
			b.WriteString("  #" + strings.TrimRight("   "+line, " \n") + "\n")
		}
	}
}

func (g *Grant) write(b *strings.Builder) {
	e := &g.Evidence
	fmt.Fprintf(b, "#   %s on %s by %s: %s\n", g.Name, g.Upstream, g.Agent, g.Command)
	fmt.Fprintf(b, "#   Evidence: %d calls were approved, since %s by %s; none was rejected.\n", e.Approved, date(e.Since), e.people())
	fmt.Fprintf(b, "#   Saves: %.1f approvals a week, if one is given whenever none is left.\n#   Risk: %s.\n", g.PerWeek, g.Risk)
}

// people returns the names of the first people.
func (e *Evidence) people() string {
	var by []string
	for _, who := range e.By[:min(len(e.By), mostPeople)] {
		by = append(by, name(who))
	}
	if more := len(e.By) - mostPeople; more > 0 {
		by = append(by, fmt.Sprintf("%d more", more))
	}
	return strings.Join(by, ", ")
}

func name(text string) string { return safetext.Name(text, mostName) }

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }
