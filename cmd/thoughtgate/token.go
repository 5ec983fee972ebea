package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make tokens for operators and agents",
		Args:  positional(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenNew())
	return cmd
}

func newTokenNew() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a token, and the line of the configuration that lets it in",
		Long: "Make a token, and the line of the configuration that lets it in. The token is shown this once: the gate\n" +
			"keeps no more than its hash. Without --agent it is an operator's.",
		Args: noArguments,
	}
	name := cmd.Flags().String("name", "", "`name` of who gets it")
	groups := cmd.Flags().StringSlice("groups", nil, "their `groups`, separated by commas")
	role := cmd.Flags().String("role", "approver", "what an operator may do: viewer, approver or admin")
	agent := cmd.Flags().Bool("agent", false, "make it for an agent")
	owner := cmd.Flags().String("owner", "", "`name` of the person whose agent it is, who may then not approve its calls")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case strings.TrimSpace(*name) == "":
			return &usageError{cmd.CommandPath(), errors.New("give a --name")}
		case *agent && cmd.Flags().Changed("role"):
			return &usageError{cmd.CommandPath(), errors.New("agents have no --role")}
		case !*agent && *owner != "":
			return &usageError{cmd.CommandPath(), errors.New("only agents have an --owner")}
		case *role != "viewer" && *role != "approver" && *role != "admin":
			return &usageError{cmd.CommandPath(), fmt.Errorf("%q is no role: viewer, approver or admin", *role)}
		}
		kind, place, more := "tgo", "operators.tokens", ", role: "+*role
		if *agent {
			kind, place, more = "tga", "identity.tokens", ""
		}
		if *owner != "" {
			more = ", owner: " + strconv.Quote(*owner)
		}
		if len(*groups) > 0 {
			more = ", groups: [" + strings.Join(quoteAll(*groups), ", ") + "]" + more
		}
		token := bearer.New(kind)
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "token: %s\n\nadd to %s:\n  - { name: %s, hash: %q%s }\n",
			token, place, strconv.Quote(*name), bearer.HashOf(token), more)
		return err
	}
	return cmd
}

func quoteAll(texts []string) []string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return quoted
}
