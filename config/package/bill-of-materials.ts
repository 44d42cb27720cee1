import Database from 'better-sqlite3';
import type { ShippedPackage } from './licences.ts';
import type { PackageFacts } from './read-package.ts';

export interface BillOptions {
  facts: PackageFacts;
  /** Debian's name of the architecture. */
  architecture: string;
  packages: readonly ShippedPackage[];
  date: Date;
}

/** Entries of `process.versions` that are not parts of Node: Node itself, and the versions of its interfaces. */
const NO_PARTS = ['node', 'modules', 'napi'];

/**
 * Returns the contents of the package as CycloneDX 1.5, for scanners of known vulnerabilities: the npm packages, and
 * the libraries compiled into Node and the native SQLite, which npm does not list.
 */
export function billOfMaterials({ facts, architecture, packages, date }: BillOptions): string {
  const { name, version, description, maintainer } = facts;
  const whole = `pkg:deb/${name}@${encodeURIComponent(version)}?arch=${architecture}`;
  const components = packages.map((shipped) => {
    const purl = `pkg:npm/${shipped.name.replace('@', '%40')}@${shipped.version}`;
    return {
      type: 'library',
      'bom-ref': purl,
      name: shipped.name,
      version: shipped.version,
      purl,
      licenses: [{ expression: shipped.license }],
      ...(shipped.name.startsWith('node-linux-') ? { components: partsOfNode() } : {}),
      ...(shipped.name === 'better-sqlite3' ? { components: [part('sqlite', sqliteVersion(), purl)] } : {}),
    };
  });
  const document = {
    $schema: 'http://cyclonedx.org/schema/bom-1.5.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: {
      timestamp: date.toISOString(),
      component: {
        type: 'application',
        'bom-ref': whole,
        name,
        version,
        description,
        publisher: maintainer,
        purl: whole,
      },
    },
    components,
    dependencies: [{ ref: whole, dependsOn: components.map((one) => one['bom-ref']) }],
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

/**
 * Returns the parts of Node as the running Node reports them. The Node of each target has the same version, so it has
 * the same parts.
 */
function partsOfNode(): object[] {
  return Object.entries(process.versions)
    .filter(([name]) => !NO_PARTS.includes(name))
    .map(([name, version]) => part(name, version ?? '', `node@${process.versions.node}`))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

function part(name: string, version: string, within: string) {
  const purl = `pkg:generic/${name}@${encodeURIComponent(version)}`;
  return { type: 'library', 'bom-ref': `${within}#${name}`, name, version, purl };
}

function sqliteVersion(): string {
  const db = new Database(':memory:');
  const version = db.prepare('SELECT sqlite_version()').pluck().get();
  db.close();
  return String(version);
}
