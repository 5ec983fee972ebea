package suggest

import "github.com/thoughtgate/thoughtgate-go/internal/policy"

// Config returns the configuration with the proposal.
func (p *Proposal) Config() policy.Config { return p.config }
