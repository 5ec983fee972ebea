package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

func newStoreRotate(f storeFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the gate's root key",
		Long: "Create a new root key. The gate uses it to seal operators' sessions and the state that agents return. The old key\n" +
			"still opens what it sealed until that expires, so nobody is signed out. Running gates use the new\n" +
			"key within a second.\n\n" +
			"If the old key may have leaked, use --forget: the old key then opens nothing, and every operator must sign\n" +
			"in again. Standing approvals are deleted too. Held calls are kept.",
		Args: noArguments,
	}
	forget := cmd.Flags().Bool("forget", false, "delete the old key and all standing approvals, and end all operator sessions now")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := f.load()
		if err != nil {
			return err
		}
		how, rotate := storage.Settings.Open, func(s *sealedstore.Store) error {
			return keyring.New(s, time.Now).Rotate(cmd.Context(), max(cfg.Operators.Session, cfg.Tasks.MaxTTL))
		}
		if *forget {
			how, rotate = storage.Settings.OpenUnread, func(s *sealedstore.Store) error { return forgetRecords(cmd.Context(), s) }
		}
		return f.with(cmd, existing(how), func(s *sealedstore.Store) error {
			if err := rotate(s); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "root key replaced")
			return err
		})
	}
	return cmd
}

// forgetRecords deletes all records, whether or not they can be read, and makes
// a new root key.
func forgetRecords(ctx context.Context, s *sealedstore.Store) error {
	for {
		page, err := s.ListRecords(ctx, task.RecordQuery{Limit: 100})
		if err != nil {
			return err
		}
		for _, r := range page {
			if err := s.DeleteRecord(ctx, r.Name); err != nil {
				return err
			}
		}
		if len(page) == 0 {
			_, err := keyring.New(s, time.Now).Label(ctx)
			return err
		}
	}
}
