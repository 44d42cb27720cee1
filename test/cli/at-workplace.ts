import type { Workplace } from '../support/workplace.ts';
import { invoke } from './invoke.ts';

/** The command line at a workplace: as people use it, and as scripts do. */
export function commandsAt(place: Pick<Workplace, 'env'>) {
  const run = (words: string[], input?: string, stop?: AbortController) =>
    invoke(words, {
      env: place.env,
      ...(input !== undefined && { input }),
      ...(stop !== undefined && { stop }),
    });
  const json = async (words: string[], input?: string) => {
    const result = await run([...words, '--json'], input);
    return { ...result, document: JSON.parse(result.stdout) };
  };
  return { run, json };
}
