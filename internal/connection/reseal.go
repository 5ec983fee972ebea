package connection

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Reseal seals the tokens of all connections with the present root key, because older keys expire.
func Reseal(ctx context.Context, s gatestore.Records, ring *keyring.Ring) error {
	sealer := ring.Sealer(keyring.Connections)
	for r, err := range gatestore.EachRecord(ctx, s, gatestore.RecordQuery{Prefix: connections, Limit: 200}) {
		if err != nil {
			return err
		}
		for {
			err := reseal(ctx, s, sealer, r)
			if err == nil {
				break
			}
			if !errors.Is(err, task.ErrConcurrentModification) {
				return err
			}
			r, err = s.GetRecord(ctx, r.Name)
			if errors.Is(err, task.ErrNotFound) { // it was removed meanwhile
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// reseal seals the tokens of one record, unless no key opens it.
func reseal(ctx context.Context, s gatestore.Records, sealer keyring.Sealer, r gatestore.Record) error {
	var found record
	_ = json.Unmarshal(r.Value, &found) // one that cannot be read has no tokens
	text, err := sealer.Open(ctx, found.Sealed, found.About.ID)
	if err != nil {
		return ignore(err, keyring.ErrForeign)
	}
	if found.Sealed, err = sealer.Seal(ctx, text, found.About.ID); err != nil {
		return err
	}
	if r.Value, err = json.Marshal(&found); err != nil {
		return err
	}
	r.Version++
	return s.PutRecord(ctx, r)
}

// ignore returns err unless it is the target.
func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
