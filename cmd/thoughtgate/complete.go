package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// completionPatience limits how long a shell waits for a gate. A shell that gets no answer
// offers nothing.
const completionPatience = time.Second

// plain matches words without a meaning for shells. Bash expands the words that it is offered,
// and some of them were written by agents.
var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/@-]*$`)

// A lister asks a gate for words, each of which may be followed by a tab and a description.
type lister func(ctx context.Context, c *client.Client) ([]string, error)

// complete offers the words of a lister.
func (g gateFlags) complete(list lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		var all []string
		if c, err := g.client(); err == nil {
			all, _ = list(ctx, c) // an error leaves nothing to offer
		}
		return offer(all)
	}
}

// completeOne is like complete, for the only argument of a command.
func (g gateFlags) completeOne(list lister) cobra.CompletionFunc {
	complete := g.complete(list)
	return func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return offer(nil)
		}
		return complete(cmd, args, start)
	}
}

// offer returns the plain ones of some words, and plain descriptions.
func offer(all []string) ([]string, cobra.ShellCompDirective) {
	var offered []string
	for _, one := range all {
		word, description, _ := strings.Cut(one, "\t")
		//mutate:swap "!plain.MatchString(word)" "false" TestCompletionOffersPlainWords a shell runs a command in the name of a tool
		if !plain.MatchString(word) || slices.Contains(offered, word) {
			continue
		}
		if plain.MatchString(description) {
			word += "\t" + description
		}
		offered = append(offered, word)
	}
	return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// words offers the same words always.
func words(all ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return offer(all) }
}

// completeFlag sets how the values of a flag are completed.
func completeFlag(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag does not exist
	}
}

// environmentGate is the gate that a command uses that has no flags for another one.
func environmentGate() gateFlags { return gateFlags{new(""), new("")} }

// callIDs lists the ids of held calls as "approvals list" prints them.
func callIDs(state string) lister {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		listed, err := c.List(ctx, client.Selection{State: state})
		if state == "pending" {
			sortByTimeLeft(listed)
		}
		n := distinctLength(listed)
		return namesOf(listed, func(a review.Approval) string { return string(a.ID[:min(n, len(a.ID))]) + "\t" + a.Tool }), err
	}
}

func toolNames(ctx context.Context, c *client.Client) ([]string, error) {
	listed, err := c.List(ctx, client.Selection{State: "all"})
	return namesOf(listed, func(a review.Approval) string { return a.Tool }), err
}

func agentNames(ctx context.Context, c *client.Client) ([]string, error) {
	listed, err := c.List(ctx, client.Selection{State: "all"})
	return namesOf(listed, func(a review.Approval) string { return a.Principal }), err
}

func workflowNames(ctx context.Context, c *client.Client) ([]string, error) {
	listed, err := c.List(ctx, client.Selection{State: "all"})
	return namesOf(listed, func(a review.Approval) string { return a.Workflow }), err
}

func grantIDs(ctx context.Context, c *client.Client) ([]string, error) {
	listed, err := c.Grants(ctx, "active")
	return namesOf(listed, func(g review.Grant) string { return string(g.ID) + "\t" + g.Tool }), err
}

func changeIDs(ctx context.Context, c *client.Client) (ids []string, err error) {
	listed, err := c.Changes(ctx)
	for _, one := range listed {
		ids = append(ids, one.ID+"\t"+one.Tool)
	}
	return ids, err
}

func connectionIDs(ctx context.Context, c *client.Client) (ids []string, err error) {
	listed, err := c.Connections(ctx)
	for _, one := range listed {
		ids = append(ids, one.ID+"\t"+one.Upstream)
	}
	return ids, err
}

// namesOf returns the names of all.
func namesOf[T any](all []T, name func(T) string) []string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = name(one)
	}
	return names
}

// completeUpstream offers the upstreams of a configuration.
func completeUpstream(file *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		cfg, _, err := load(cmd.ErrOrStderr(), config.Sources{File: *file})
		if err != nil {
			return offer(nil)
		}
		return offer(namesOf(cfg.Upstreams, func(u config.Upstream) string { return u.Name }))
	}
}
