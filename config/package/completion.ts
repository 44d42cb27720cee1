import { type CommandFacts, everyCommand } from './command-tree.ts';

/**
 * Returns the completion for bash. It offers the next words of the command line, or files where an option needs a
 * value.
 */
export function bashCompletion(program: CommandFacts): string {
  const global = program.options.map(({ long }) => long);
  const cases = everyCommand(program).map(({ words, commands, options }) => {
    const own = words.length > 0 ? options.map(({ long }) => long) : [];
    const next = [...commands.map((command) => command.words.at(-1)), ...own, ...global, '--help'];
    return `    '${words.join(' ')}') next='${[...new Set(next)].join(' ')}' ;;`;
  });
  const names = everyCommand(program).flatMap(({ words }) =>
    words.length > 0 ? [`'${words.join(' ')}'`] : [],
  );
  const valued = everyCommand(program).flatMap(({ options }) =>
    options.filter(({ takesValue }) => takesValue).map(({ long }) => long),
  );
  return `# bash completion for tillsync
_tillsync() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} command='' word next
  COMPREPLY=()
  case "$before" in
    ${[...new Set(valued)].join('|')}) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
  esac
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${command:+$command }$word" in
      ${names.join('|')}) command="\${command:+$command }$word" ;;
    esac
  done
  case "$command" in
${cases.join('\n')}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$next" -- "$current")
  [[ $current == -* || \${#COMPREPLY[@]} -gt 0 ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -o filenames -F _tillsync tillsync
`;
}

/** Returns the completion for zsh, which can run the completion for bash. */
export function zshCompletion(): string {
  return `#compdef tillsync
autoload -U +X bashcompinit && bashcompinit
source /usr/share/bash-completion/completions/tillsync
`;
}

/**
 * Returns the completion for fish. It offers the options and inner commands of a command after the last word of that
 * command.
 */
export function fishCompletion(program: CommandFacts): string {
  const lines = everyCommand(program).flatMap(({ words, commands, options }) => {
    const here = words.length === 0 ? '__fish_use_subcommand' : `__fish_seen_subcommand_from ${words.at(-1)}`;
    return [
      ...commands.map(
        (command) =>
          `complete -c tillsync -f -n '${here}' -a ${command.words.at(-1)} -d ${quoted(command.description)}`,
      ),
      ...options.map(({ long, takesValue, description }) => {
        const where = words.length === 0 ? '' : ` -n '${here}'`;
        return `complete -c tillsync${where} -l ${long.replace(/^-+/, '')}${takesValue ? ' -r' : ''} -d ${quoted(description)}`;
      }),
    ];
  });
  return `${lines.join('\n')}\n`;
}

function quoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
