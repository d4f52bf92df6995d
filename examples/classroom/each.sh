# Runs Terraform once for each student, in the workspace of the student's name, several at a time, and names the students
# for whom it failed:
#
#     sh each.sh apply -auto-approve
#
# What it prints is in each/ada.log and so on. Nobody can be asked, so apply and destroy need -auto-approve. All runs get the
# same arguments, so plan cannot write a file. The students are those of the variable students in *.auto.tfvars, or the names in
# STUDENTS. AT_ONCE is how many run at a time, by default eight. TERRAFORM is the program, by default terraform.
set -eu
export TERRAFORM="${TERRAFORM:-terraform}"
[ $# -gt 0 ] || { echo "usage: sh each.sh apply -auto-approve" >&2; exit 2; }
unset TF_WORKSPACE
listed=$(echo 'join(" ", keys(var.students))' | "$TERRAFORM" console) || exit 1
listed=$(printf '%s' "$listed" | tr -d '"')
students=${STUDENTS:-$listed}
case $students in
'' | '('*) echo "there are no students: set the variable students in a file such as class.auto.tfvars" >&2; exit 1 ;;
esac
for s in $students; do
  case " $listed " in *" $s "*) ;; *) echo "$s is not among the students" >&2; exit 1 ;; esac
done
mkdir -p each
was=$("$TERRAFORM" workspace show)
failed=$(mktemp)
export failed
trap 'rm -f "$failed"; "$TERRAFORM" workspace select "$was" >/dev/null' EXIT
trap 'exit 130' INT TERM
# New workspaces are made one after another: each is selected when it is made.
known=" $("$TERRAFORM" workspace list | tr -d '*' | tr '\n' ' ') "
for s in $students; do
  case $known in *" $s "*) ;; *) "$TERRAFORM" workspace new "$s" >/dev/null ;; esac
done
ended=0
# shellcheck disable=SC2016,SC2086 # the shells of xargs expand the script, and names are words
printf '%s\n' $students | xargs -P "${AT_ONCE:-8}" -I '@student@' sh -c '
  student=$1
  shift
  TF_WORKSPACE=$student "$TERRAFORM" "$@" >"each/$student.log" 2>&1 </dev/null || echo "$student" >>"$failed"
' sh '@student@' "$@" || ended=$?
sort "$failed" | while read -r s; do echo "failed for $s: see each/$s.log" >&2; done
[ ! -s "$failed" ] && [ "$ended" = 0 ]
