import { diskVerdict } from '../../domain/health/disk-space.ts';
import { FINDING_SENTENCES } from '../../domain/health/finding.ts';
import { storageSpace } from '../storage/storage-space.ts';
import { type Check, skipped, well } from './check.ts';

export function diskCheck(directory: string): Check {
  return {
    id: 'storage.disk',
    run() {
      const space = storageSpace(directory);
      if (!space) return skipped(`The system does not tell how much of the disk of ${directory} is free.`);
      const { code, message: free } = diskVerdict(space);
      if (code === null) return well(free, { ...space });
      const { level, message, remedy } = FINDING_SENTENCES[code];
      return {
        level: level === 'red' ? 'fail' : 'warn',
        message: `${message} ${free}`,
        remedy,
        facts: { ...space, directory },
      };
    },
  };
}
