package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

var errDeclined = errors.New("nothing was made")

// ask says what will be made, where and at what price, and asks for consent.
func (t *trial) ask() error {
	if t.role != nil { // asked before the first trial
		return nil
	}
	then := "and nothing else"
	if !t.once {
		then = fmt.Sprintf("a smaller one, which costs less, by an IAM role that it makes with the policies %s of examples/iam; -once leaves it out", strings.Join(documented, " and "))
	}
	_, _ = fmt.Fprintf(t.out, `
This makes a cluster in a real account, checks it, and destroys it.

  account  %s, as %s
  region   %s
  cluster  %s; everything is tagged %s=%s
  cost     %s
  quotas   %s
  files    %s
  then     %s

`, t.account.id, t.account.arn, t.report.Region, t.name, tagTrial, t.name, t.report.Cost, strings.Join(t.report.Quotas, "\n           "), t.dir, then)
	if t.yes {
		return nil
	}
	_, _ = fmt.Fprint(t.out, `Make it? Only "yes" is accepted: `)
	answer, err := bufio.NewReader(t.in).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	if err != nil && answer == "" {
		return fmt.Errorf("%w: there was no answer; -yes does not ask", errDeclined)
	}
	return errDeclined
}
