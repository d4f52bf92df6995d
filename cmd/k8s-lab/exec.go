package main

import (
	"context"
	"errors"
	"os"
	"slices"
)

// execute runs a command, or a shell, as root on an instance.
func execute(ctx context.Context, c *cli, args []string) error {
	f := c.flags("exec")
	if err := f.Parse(args); err != nil {
		return err
	}
	args = f.Args()
	if len(args) == 0 {
		return errors.New("exec needs the name or id of an instance; k8s-lab status lists them")
	}
	rest := args[1:]
	if i := slices.Index(rest, "--"); i == 0 {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		rest = []string{"bash", "--login"}
	}
	l, err := c.lab()
	if err != nil {
		return err
	}
	cmd, err := l.Exec(ctx, args[0], rest...)
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, c.stdout, c.stderr
	return cmd.Run()
}
