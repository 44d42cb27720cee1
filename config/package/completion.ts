import { CHAIN_SECTIONS } from '../../src/config/roles.ts';
import { DEFAULT_CONFIG_FILE } from '../../src/config/source.ts';
import { type CommandFacts, everyCommand } from './command-tree.ts';

/** Finds the section of a hub or of a branch in a configuration, as the help does. */
const FIND_CHAIN = `grep -Eqs '^[[:blank:]]*\\[(${[...CHAIN_SECTIONS].join('|')})\\]'`;

/**
 * Returns the completion for bash. It offers the next words of the command line, or files where an option needs a
 * value. What only a chain needs is offered at a hub and at a branch.
 */
export function bashCompletion(program: CommandFacts): string {
  const global = program.options.map(({ long }) => long);
  const cases = everyCommand(program).map(({ words, commands, options }) => {
    const inner = commands.map((command) => ({ ...command, word: command.words.at(-1) }));
    const own = words.length > 0 ? options.map((option) => ({ ...option, word: option.long })) : [];
    const offered = (ofChain: boolean) =>
      [...inner, ...own].filter(({ isOfChain }) => isOfChain === ofChain).map(({ word }) => word);
    const next = [...new Set([...offered(false), ...global, '--help'])].join(' ');
    const inChain = offered(true).length > 0 ? `"\${chain:+ ${offered(true).join(' ')}}"` : '';
    return `    '${words.join(' ')}') next='${next}'${inChain} ;;`;
  });
  const names = everyCommand(program).flatMap(({ words }) =>
    words.length > 0 ? [`'${words.join(' ')}'`] : [],
  );
  const valued = everyCommand(program).flatMap(({ options }) =>
    options.filter(({ takesValue }) => takesValue).map(({ long }) => long),
  );
  return `# bash completion for tillsync
_tillsync() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} command='' word next chain=''
  COMPREPLY=()
  case "$before" in
    ${[...new Set(valued)].join('|')}) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
  esac
  ${FIND_CHAIN} "\${TILLSYNC_CONFIG:-${DEFAULT_CONFIG_FILE}}" && chain=yes
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
 * command. What only a chain needs is offered at a hub and at a branch.
 */
export function fishCompletion(program: CommandFacts): string {
  const lines = everyCommand(program).flatMap(({ words, commands, options }) => {
    const here = words.length === 0 ? '__fish_use_subcommand' : `__fish_seen_subcommand_from ${words.at(-1)}`;
    const inChain = ({ isOfChain }: { isOfChain: boolean }) => (isOfChain ? '; and __tillsync_chain' : '');
    return [
      ...commands.map(
        (command) =>
          `complete -c tillsync -f -n '${here}${inChain(command)}' -a ${command.words.at(-1)} -d ${quoted(command.description)}`,
      ),
      ...options.map((option) => {
        const { long, takesValue, description } = option;
        const where = words.length === 0 ? '' : ` -n '${here}${inChain(option)}'`;
        return `complete -c tillsync${where} -l ${long.replace(/^-+/, '')}${takesValue ? ' -r' : ''} -d ${quoted(description)}`;
      }),
    ];
  });
  return `function __tillsync_chain
  set -q TILLSYNC_CONFIG; or set -l TILLSYNC_CONFIG ${DEFAULT_CONFIG_FILE}
  ${FIND_CHAIN} $TILLSYNC_CONFIG
end
${lines.join('\n')}
`;
}

function quoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
